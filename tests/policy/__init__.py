"""What a site expects, excuses and overrides."""
