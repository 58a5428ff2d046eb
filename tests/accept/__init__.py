"""`clusterproof accept`: its statistics, stage order, journal and report."""
