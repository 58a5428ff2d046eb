"""Programs that others wrote, each in the place of a double of ours: one folder a program, `install` and its tests."""
