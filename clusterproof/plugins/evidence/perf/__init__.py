"""What a node's hardware does under load: copies, products, messages, files."""
