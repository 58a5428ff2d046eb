"""kubectl, of the versions that people have."""
