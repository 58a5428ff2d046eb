"""What the leaves of the running host tell: mounts that hang, processes that are blocked, limits."""
