"""The machine and the running system as a whole."""
