"""Exact arithmetic: integers whose sum does not depend on order, so that any difference of a single bit is a fault.

`on_node/`: the programs that compute on nodes. The facts parse their output; `suspects.py` attributes faults.
"""
