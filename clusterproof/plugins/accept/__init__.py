"""`clusterproof accept X`: a cluster taken into service, in stages of the suite's own checks.

`population` decides on what was measured, `state` what runs next, `journal` keeps what ended, `report` says it.
"""
