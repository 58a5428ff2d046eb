"""The checks: pytest tests, a folder for each subsystem."""
