"""The services of a training node, as systemd has them."""
