"""DCGM: what `dcgmi diag` and `dcgmi nvlink` print."""
