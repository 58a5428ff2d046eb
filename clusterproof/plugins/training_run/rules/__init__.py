"""The computations of `checks/run`: pure functions of a run's data."""
