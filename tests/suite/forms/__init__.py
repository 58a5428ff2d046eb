"""Reports that pytest writes."""
