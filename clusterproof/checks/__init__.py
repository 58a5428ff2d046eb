"""What is validated: pytest tests, one file per part of a subsystem."""
