"""Collectors that load a node and measure it, one after another: a function for each (`FUNCTIONS` of options)."""
