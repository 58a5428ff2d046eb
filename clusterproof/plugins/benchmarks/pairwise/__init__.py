"""Which pairs of nodes to measure, one after another, and which node, link or group the measurements name as slow.

Everything here but `drive` and `journal` is pure: nodes and measurements in, rounds and findings out.
"""
