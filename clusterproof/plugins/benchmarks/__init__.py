"""What loads nodes and wires, and what is made of the measurements."""
