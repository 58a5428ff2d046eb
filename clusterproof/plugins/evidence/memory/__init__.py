"""The main memory, its NUMA nodes and the errors that its controllers have counted."""
