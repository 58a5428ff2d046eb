"""`scripts/generate` writes what is made of the code."""

from __future__ import annotations

import subprocess

import pytest

from clusterproof.plugins.evaluation.needs import FILE
from tests.builders.runs import ROOT

pytestmark = [pytest.mark.long, pytest.mark.any_user]


def generate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / "generate", *words], capture_output=True, text=True, check=False)


def test_a_word_that_it_does_not_know_is_answered_with_those_that_it_does() -> None:
    ran = generate("manpage")
    assert (ran.returncode, ran.stderr) == (
        4,
        "scripts/generate: manpage; expected nothing, needs, manifests or demo\n",
    )


def test_what_a_named_check_reads_is_seen_on_its_own_faults_and_tests() -> None:
    before = FILE.read_text(encoding="utf-8")
    assert generate("needs", "node.reachable").returncode == 0
    assert FILE.read_text(encoding="utf-8") == before


def test_a_check_that_is_not_there_is_one_line() -> None:
    ran = generate("needs", "gpu.no_xids")
    assert (ran.returncode, ran.stderr.count("\n")) == (4, 1)
    assert "'gpu.no_xids' is not a check (did you mean gpu.no_xid?)" in ran.stderr
