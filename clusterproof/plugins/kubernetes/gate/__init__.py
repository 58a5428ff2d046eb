"""The gate: a run's verdicts as a condition of each node, and, where that is asked for, a taint of our own.

It is all that this suite ever writes to a cluster beside its own pods, and only `--k8s-gate` asks for it.
"""

CONDITION = "ClusterproofHealthy"
DOMAIN = "clusterproof.dev"
UNFIT = f"{DOMAIN}/unfit"  # the key of our taint
NO_SCHEDULE = "NoSchedule"  # its effect: pods that run there stay
OURS = "clusterproof"  # in the key of every taint that may be taken away
