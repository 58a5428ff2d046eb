"""The facts of a node, one file per part of it; plugins/facts/node.py puts them together."""
