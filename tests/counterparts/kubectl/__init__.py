"""kubectl in the versions in use, with its built-in kustomize."""
