"""`--cluster capture:PATH`: evidence from what a person collected by hand."""
