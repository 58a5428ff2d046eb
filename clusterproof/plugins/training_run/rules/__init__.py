"""Computations of the checks in `checks/run` on a run's recorded data: pure functions."""
