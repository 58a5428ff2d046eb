"""kubectl, with its kustomize: what applies the manifests of integrations/kubernetes."""
