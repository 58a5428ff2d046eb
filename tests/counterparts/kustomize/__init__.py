"""kubectl with the kustomize that is built into it: what applies the manifests of integrations/kubernetes."""
