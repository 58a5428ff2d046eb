"""The core that all other packages build on."""
