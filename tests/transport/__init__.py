"""How nodes are asked."""
