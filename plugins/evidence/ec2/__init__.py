"""EC2: an instance's own metadata, and what the API tells of instances and networks."""
