"""What a node reported, typed; reading what it could not report raises Incomplete."""
