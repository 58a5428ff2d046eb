"""`clusterproof watch`: the same checks, evaluated again whenever a node reports something that they depend on."""
