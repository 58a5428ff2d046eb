"""The Kubernetes checks' results on a cluster, and the faults that the checks are tested with."""

from __future__ import annotations

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS
from tests.builders.members import worst
from tests.checks.control_plane.kubernetes_cluster import Words
from tests.checks.control_plane.kubernetes_node_faults import NODE_FAULTS
from tests.checks.control_plane.kubernetes_pod_faults import POD_FAULTS
from tests.checks.control_plane.kubernetes_storage_faults import STORAGE_FAULTS

KUBERNETES_FAULTS = (*NODE_FAULTS, *POD_FAULTS, *STORAGE_FAULTS)
OF_KUBERNETES = {
    name.partition(".")[2]: check for name, check in all_checks().items() if check.control_collectors & COLLECTORS
}


def verdicts(reports: Words) -> dict[str, Result]:
    """The result of every Kubernetes check on this cluster."""
    facts = reports.facts()
    return {name: worst(check, facts) for name, check in OF_KUBERNETES.items()}


def findings_of(reports: Words) -> dict[str, Verdict]:
    """Results other than a pass."""
    return {name: result.verdict for name, result in verdicts(reports).items() if result.verdict is not Verdict.PASS}
