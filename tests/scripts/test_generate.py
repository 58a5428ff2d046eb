"""`scripts/generate` writes what is made of the code."""

from __future__ import annotations

import subprocess

from tests.builders.runs import ROOT


def generate(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / "generate", *words], capture_output=True, text=True, check=False)


def test_a_word_that_it_does_not_know_is_answered_with_those_that_it_does() -> None:
    ran = generate("manpage")
    assert (ran.returncode, ran.stderr) == (4, "scripts/generate: manpage; expected nothing, needs, demo or messages\n")


def test_it_prints_every_message_on_demand() -> None:
    assert "**gpu.no_xid**" in generate("messages").stdout
