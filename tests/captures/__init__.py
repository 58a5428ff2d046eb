"""What a person collected by hand."""
