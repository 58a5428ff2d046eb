"""AWS's API: the account that a cluster belongs to, and what it reports of the cluster."""
