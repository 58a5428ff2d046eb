"""Runs the probe as a connection would, through a shell with standard error merged, and decodes its output."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from clusterproof.plugins.agent.frame import decode
from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.transport import Answer, Limits, Program, connection_for
from clusterproof.plugins.transport.gather import gather
from tests.testbed.image import NodeImage
from tests.testbed.node import Node, entered

PATIENT = ProbeOptions(collector_s=30.0)  # for tests that expect no deadline to expire, even on a busy machine
SOON = ProbeOptions(collector_s=1.0)  # for those that do
ANSWER_S = 300.0
# A real interpreter first: a version manager's shims take longer than the whole probe.
PATH = f"{Path(sys.executable).resolve().parent}:/usr/local/bin:/usr/bin:/bin"


def answer(
    to_run: Program, *, path: str = PATH, shell: Sequence[str] = ("/bin/sh", "-c"), user: int | None = None
) -> bytes:
    """Everything that the program prints on this machine."""
    ran = subprocess.run(
        [*shell, to_run.command],
        input=to_run.stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"PATH": path},
        user=user,
        timeout=ANSWER_S,
        check=False,
    )
    return ran.stdout


def probe(
    collectors: Iterable[str],
    options: ProbeOptions = ProbeOptions(),  # noqa: B008 - frozen
    *,
    further: Sequence[Path] = (),
    path: str = PATH,
    user: int | None = None,
) -> NodeEvidence:
    """The evidence of this machine."""
    to_run = program(collectors, options, further)
    return decode("here", Answer(answer(to_run, path=path, user=user)), to_run.nonce)


def probe_node(
    node: Node,
    collectors: Iterable[str],
    options: ProbeOptions = ProbeOptions(),  # noqa: B008 - frozen
    *,
    further: Sequence[Path] = (),
    user: int = 0,
) -> NodeEvidence:
    """The evidence of a node of the testbed."""
    to_run = program(collectors, options, further)
    ran = node.run(["/bin/sh", "-c", to_run.command], input=to_run.stdin, timeout=ANSWER_S, user=user)
    return decode(node.name, Answer(ran.stdout + ran.stderr), to_run.nonce)


def padded(folder: Path, characters: int, name: str = "padded") -> Path:
    """A collector that is made longer by incompressible characters, and returns how many arrived."""
    noise = b64encode(Random(name).randbytes(characters)).decode()[:characters]
    file = folder / f"{name}.py"
    file.write_text(f"TEXT = '{noise}'\n\n\ndef read(node):\n    return len(TEXT)\n")
    return file


def reported(
    connection: str, targets: Sequence[Target], further: Sequence[Path], limits: Limits | None = None
) -> Mapping[str, NodeEvidence]:
    """What nodes report over a connection for `boot` and these collectors; each report is recorded once."""
    noted: list[str] = []
    cluster = Cluster("some", connection, tuple(targets))
    limits = limits or Limits(connect_s=ANSWER_S, answer_s=ANSWER_S)
    reach = connection_for(connection)
    answers = gather(cluster, reach, ["boot"], PATIENT, limits, lambda evidence: noted.append(evidence.node), further)
    assert sorted(noted) == sorted(answers)
    return answers


def collect(image: NodeImage, collector: str, options: ProbeOptions = PATIENT, *, user: int = 0) -> Collected:
    """One collector's report on a node with this image."""
    with entered(image) as node:
        evidence = probe_node(node, [collector], options, user=user)
    assert evidence.unreached is None, evidence.detail
    return evidence.collectors[collector]


def value(image: NodeImage, collector: str, options: ProbeOptions = PATIENT, *, user: int = 0) -> Any:
    collected = collect(image, collector, options, user=user)
    assert collected.status is Status.READ, collected.detail
    return collected.value


def host_root(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A host's root with these files; each process runs the program that its name calls."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        if path.name == "comm":
            path.with_name("exe").symlink_to(f"/usr/sbin/{path.read_text().strip()}")
    return folder


def collect_under(folder: Path, collector: str) -> Collected:
    """One collector's report on another root."""
    return probe([collector], ProbeOptions(host_root=str(folder), collector_s=30.0)).collectors[collector]


def read_under(folder: Path, collector: str) -> Any:
    collected = collect_under(folder, collector)
    assert collected.status is Status.READ, collected.detail
    return collected.value
