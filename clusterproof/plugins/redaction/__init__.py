"""What `--redact` keeps: values of which the kind is known to be harmless. Everything else becomes a word."""
