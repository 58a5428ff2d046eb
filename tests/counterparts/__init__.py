"""Third-party programs, each in place of one of our doubles: one folder per program, with `install` and its tests."""
