"""The program for nodes: how it is packed, runs and answers."""
