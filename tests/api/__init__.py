"""The API for authors of checks and plugins."""
