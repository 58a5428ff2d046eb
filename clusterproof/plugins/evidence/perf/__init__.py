"""The performance of a node's hardware under load: copies, products, messages, files."""
