"""Processors, memory, processes and settings of the host."""
