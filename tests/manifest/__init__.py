"""Golden manifests: made from a good machine, compared with others."""
