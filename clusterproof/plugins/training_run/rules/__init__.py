"""What the checks of `checks/run` compute: of what a run recorded, pure functions."""
