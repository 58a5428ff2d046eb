"""Why a job ended: what it left behind, in one order of time, and what that says of its nodes, its code and its limits.

Thin shells collect (`folder`, `slurm`), readers make events and facts of text, and pure functions decide.
"""
