"""`clusterproof accept`: its statistics, its order, its journal, and its report."""
