"""`--k8s-image`: where nodes have no Python, the program runs in the image's and reads the host's files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport.gather import evidence_of
from tests.builders.runs import ROOT
from tests.kubernetes.programs import NODE, run
from tests.kubernetes.watched import watched
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.images import PYTHON, archive, python_files, with_libraries
from tests.testbed.kubernetes.machine import KUBE_PROXY
from tests.testbed.needs import needs_kubernetes

NAME = "localhost/python:3"
pytestmark = [
    needs_kubernetes,
    pytest.mark.skipif(not PYTHON.exists(), reason="no /usr/bin/python3: apt-get install python3"),
]


def shell_alone() -> dict[str, Path]:
    """A shell and its libraries."""
    return dict(with_libraries([Path("/bin/sh")]))


def test_the_verdict_is_of_the_host_and_not_of_the_image(kubernetes: Bed, tmp_path: Path) -> None:
    kubernetes.machine.add_image(archive(python_files(), [NAME]))
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(ROOT / "checks"),
        "--cluster",
        "k8s:bed/kubernetes.io/os=linux",
        "-q",
    ]
    command += [
        "--k8s-image",
        NAME,
        "--connect-timeout",
        "60",
        "--probe-timeout",
        "20",
        "--record",
        str(tmp_path / "r"),
    ]
    done = subprocess.run(
        [*command, "-m", "node and prolog"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    recorded = (tmp_path / "r" / "nodes" / "gpu001.json").read_text()
    assert '"unreached": null' in recorded, done.stdout + done.stderr + recorded
    assert '"root": "/host"' in recorded
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() in recorded
    assert kubernetes.left() == []


def test_a_watch_stays_in_it_and_reads_the_host(kubernetes: Bed) -> None:
    kubernetes.machine.add_image(archive(python_files(), [NAME]))
    with watched([NODE], Path("/host"), k8s_image=NAME) as watch:
        watch.until_sampled(NODE)
        boot_id = watch.controller.watch._nodes[NODE].boot_id
    assert boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert kubernetes.left() == []


def reached(image: str) -> tuple[Unreached | None, str]:
    """The probe's outcome in an image."""
    to_run = program({"boot"}, ProbeOptions(), on_stdin=False)
    evidence = evidence_of(Target(NODE), run(to_run, k8s_image=image)[NODE], to_run.nonce)
    return evidence.unreached, evidence.detail


def test_an_image_with_a_shell_and_no_python_is_reported(kubernetes: Bed) -> None:
    kubernetes.machine.add_image(archive(shell_alone(), ["localhost/shell:1"]))
    assert reached("localhost/shell:1") == (
        Unreached.NO_PYTHON,
        "no Python 3.8 or newer that starts and has bz2; found none at all",
    )


def test_an_image_without_a_shell_is_reported_as_what_it_is(kubernetes: Bed) -> None:
    unreached, detail = reached(KUBE_PROXY)  # which contains only `pause` here
    assert unreached is Unreached.NO_PYTHON
    assert detail.startswith(f"nothing starts in {KUBE_PROXY}: failed to create containerd task")
    assert detail.endswith("expected --k8s-image with an image that has /bin/sh and Python 3.8 or newer")
