"""The suite as a pytest plugin."""
