//go:build tools

// What is built besides main.go, so that go.mod keeps what it needs.
package main

import (
	_ "helm.sh/helm/v3/cmd/helm"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
