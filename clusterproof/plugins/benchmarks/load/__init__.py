"""What loads a node and measures it: a function for each collector (`FUNCTIONS` of options); one runs after another."""
