"""What a node said, typed; reading what it could not say raises Incomplete."""
