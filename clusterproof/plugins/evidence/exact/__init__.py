"""Exact arithmetic: integers whose sums no order of summation changes, so that any difference, of one bit, is a fault.

`on_node/`: the programs that compute on nodes. The facts read what they print; `suspects.py` says whose fault it is.
"""
