"""Who starts a meter on the nodes of a pair."""
