"""Third-party programs that read a run's JUnit file."""
