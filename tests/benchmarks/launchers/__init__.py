"""Launchers, which start a meter on the nodes of a pair."""
