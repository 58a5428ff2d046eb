"""Collectors that load a node and measure it: a function for each (`FUNCTIONS` in options); they run one by one."""
