"""Reports that the plugin writes."""
