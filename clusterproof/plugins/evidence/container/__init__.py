"""What a job gets of its node where it runs."""
