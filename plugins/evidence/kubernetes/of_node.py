"""What a Kubernetes node reports about its kubelet."""

from __future__ import annotations

from clusterproof.plugins.evidence.fact import collected_as
from clusterproof.plugins.evidence.kubernetes.facts_kubelet import Kubelet

kubelet = collected_as("kubelet", Kubelet)
