"""Evidence: what a node reported, as typed facts. Reading a fact that it could not report raises Incomplete."""
