"""Programs that read JUnit: what others make of the file that a run leaves."""
