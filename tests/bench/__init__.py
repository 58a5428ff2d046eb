"""Small runs of the benches."""
