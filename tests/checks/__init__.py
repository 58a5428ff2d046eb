"""What checks make of evidence that no fault of the matrix shows; a folder per subsystem."""
