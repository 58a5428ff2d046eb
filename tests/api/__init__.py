"""What authors of checks and plugins stand on."""
