"""Whether the node answers at all: always first."""
