"""The processors, their frequencies and governors."""
