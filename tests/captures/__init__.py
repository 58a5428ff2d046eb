"""Evidence collected by hand."""
