"""The report forms that pytest itself, or a plugin of it, has a place for."""
