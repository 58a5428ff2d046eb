"""`clusterproof watch`: the same checks, judged again whenever a node tells something that changes what they say."""
