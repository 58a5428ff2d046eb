"""Golden manifests: made of a good machine, held against others."""
