"""EC2: an instance's own metadata, and what the API reports about instances and networks."""
