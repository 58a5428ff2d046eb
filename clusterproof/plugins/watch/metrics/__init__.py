"""The metrics of a watch for Prometheus, over HTTP and in a file."""
