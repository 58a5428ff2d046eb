"""The benches, small."""
