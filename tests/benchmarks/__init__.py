"""What loads nodes and wires."""
