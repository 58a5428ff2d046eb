"""kubectl, of the versions that people have, with the kustomize that is built into it."""
