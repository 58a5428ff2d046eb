"""Pairs of Kubernetes nodes measured by pods over real kubelets: is a slow node named, and what does each pair cost?"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from bench.figure import Figure
from clusterproof.plugins.core.verdict import Verdict
from tests.kubernetes.perf import DEVICES, RANKS, give_gpus, give_images
from tests.kubernetes.typed import LINUX, typed
from tests.testbed import needs
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.nodes import Nodes, nodes

NAMES = tuple(f"gpu{number:03d}" for number in range(1, 7))
SLOW = NAMES[2]
USUAL_RATE, SLOW_RATE = "200mbit", "50mbit"
CHECK = "network.not_a_straggler"
OPTIONS = (
    *("-k", "pairwise", "--pairs-seed", "1", "--k8s-perf-image", RANKS),
    *("--ranks-per-node", "2", "--meter-size", "1M"),
)  # fmt: skip


def slow_node() -> Iterator[Figure]:
    """One of six nodes sends at a quarter of the others' rate; a real mpirun's ranks run in pods."""
    if reason := needs.needs_kubernetes.args[0] and needs.needs_kubernetes.kwargs["reason"]:
        yield Figure("pods_slow_node_named", None, "1", reason)
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bed = stack.enter_context(nodes(NAMES, DEVICES))
        give_images(bed)
        stack.enter_context(bed.joined())
        give_gpus(bed)
        for name in NAMES:
            stack.enter_context(bed.slow(name, SLOW_RATE if name == SLOW else USUAL_RATE))
        yield from _figures(bed, folder)


def _figures(bed: Nodes, folder: Path) -> Iterator[Figure]:
    user, token = Bed(bed.plane, bed.machines[SLOW]).granted()
    with patch.dict(os.environ, KUBECONFIG=str(bed.plane.kubeconfig(token))):
        typed_run = typed(folder, "--cluster", LINUX, *OPTIONS)
    verdicts = {name: typed_run.verdicts.get(name, {}).get(CHECK) for name in NAMES}
    named = [name for name, verdict in verdicts.items() if verdict is Verdict.FAIL]
    named_verdicts = ", ".join(f"{name} {verdict.value if verdict else 'none'}" for name, verdict in verdicts.items())
    yield Figure("pods_slow_node_named", float(named == [SLOW]), "1", f"{SLOW} sends at {SLOW_RATE}: {named_verdicts}")
    measurements = sum(len(path.read_text().splitlines()) - 1 for path in folder.glob("runs/*/*/pairwise.jsonl"))
    requests = len({request["auditID"] for request in bed.plane.requests(user)})
    detail = f"{requests} requests for {measurements} measurements, the nodes' first visits included"
    yield Figure("pods_requests_per_pair", round(requests / max(1, measurements), 1), "≤ 30", detail)
