"""A node's evidence as typed facts; reading what it could not report raises Incomplete."""
