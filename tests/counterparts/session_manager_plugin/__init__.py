"""AWS's session-manager-plugin, against a data channel of ours: what it does is what its double has to do."""
