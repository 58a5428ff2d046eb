"""What measurements under load say: whose fault wrong elements are, and votes."""
