"""`--cluster capture:PATH`: evidence out of what a person collected by hand."""
