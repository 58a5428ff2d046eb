"""`--k8s-image`: where nodes have no Python, the program runs in the image's and reads the host's files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders.runs import ROOT
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.image import archive
from tests.testbed.kubernetes.programs_image import PYTHON, python_files
from tests.testbed.needs import needs_kubernetes

NAME = "localhost/python:3"
pytestmark = [
    needs_kubernetes,
    pytest.mark.skipif(not PYTHON.exists(), reason="no /usr/bin/python3: apt-get install python3"),
]


def test_the_verdict_is_of_the_host_and_not_of_the_image(kubernetes: Bed, tmp_path: Path) -> None:
    kubernetes.machine.add_image(archive(python_files(), [NAME]))
    words = [sys.executable, "-m", "pytest", str(ROOT / "checks"), "--cluster", "k8s:bed/kubernetes.io/os=linux", "-q"]
    words += ["--k8s-image", NAME, "--connect-timeout", "60", "--probe-timeout", "20", "--record", str(tmp_path / "r")]
    done = subprocess.run([*words, "-m", "node and prolog"], cwd=tmp_path, capture_output=True, text=True, check=False)
    recorded = (tmp_path / "r" / "nodes" / "gpu001.json").read_text()
    assert '"unreached": null' in recorded, done.stdout + done.stderr + recorded
    assert '"root": "/host"' in recorded
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() in recorded
    assert kubernetes.left() == []
