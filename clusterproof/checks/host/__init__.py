"""The host under the GPUs."""
