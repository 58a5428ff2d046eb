"""A site's expectations, exceptions and overrides."""
