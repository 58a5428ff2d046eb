"""What leaves a site."""
