"""A program's text arrives at a node unchanged, even through programs that treat some characters specially."""

from __future__ import annotations

import bz2
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.agent import packing
from clusterproof.plugins.agent.frame import decode
from clusterproof.plugins.agent.packing import ALPHABET, ARGUMENT, QUOTED, UNPACKED, packed, script_of, text_of
from clusterproof.plugins.agent.payload import joined, program, unpacked
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.transport import Answer, Program
from tests.builders.probed import PATIENT, answer, padded

pytestmark = pytest.mark.any_user

AGENT = Path(packing.__file__).parent
TEXTS = st.text() | st.integers(0, 5000).map("pass\n".__mul__)


@pytest.mark.long
@given(text=TEXTS)
def test_a_text_comes_out_as_it_went_in(text: str) -> None:
    assert text_of(packed(text)) == text


@given(text=TEXTS)
def test_a_node_takes_it_out_by_the_words_that_travel_with_it(text: str) -> None:
    names: dict[str, Any] = {"bz2": bz2, "struct": struct, "program": packed(text).encode()}
    exec(UNPACKED.format(text="program"), names)
    assert names["t"].decode() == text


@given(text=TEXTS)
def test_it_is_of_the_characters_that_pass_through_everything(text: str) -> None:
    assert set(packed(text).encode()) <= set(ALPHABET)


@pytest.mark.parametrize("taken", ["\"'$!`\\", "{&<", " \t\r\n", "".join(map(chr, range(127, 256)))])
def test_no_character_is_among_them_that_something_takes_for_its_own(taken: str) -> None:
    assert not set(taken) & set(ALPHABET.decode())
    assert len(set(ALPHABET)) == 85


@pytest.mark.parametrize("taken", ["\"'$!`\\", "\n"])
def test_nor_in_the_words_that_take_it_out(taken: str) -> None:
    assert not set(taken) & set(UNPACKED)


def test_a_text_that_is_not_whole_is_not_taken_for_one() -> None:
    program = packed("print(1)\n" * 1000)
    with pytest.raises(ValueError, match="ended before"):
        text_of(program[:-5])


@pytest.mark.long
@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "ksh", "busybox"])
@pytest.mark.parametrize("sudo", [False, True])
def test_a_command_too_long_for_an_argument_is_a_script_that_any_posix_shell_reads(
    shell: str, sudo: bool, tmp_path: Path
) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    options = ProbeOptions(collector_s=30.0, sudo=sudo)
    sent = program(["boot", "padded"], options, [padded(tmp_path, 300_000)], on_stdin=False)
    script = script_of(sent.command)
    assert sent.command == f"{QUOTED}{script}'"
    assert unpacked(sent.command)[1].count("TEXT") == 2
    assert "'" not in script
    command = ("busybox", "sh") if shell == "busybox" else (shell,)
    output = answer(Program("-s", script.encode()), shell=command)
    assert decode("here", Answer(output), sent.nonce).collectors["padded"].value == 300_000


@pytest.mark.long
def test_a_command_that_fits_into_an_argument_is_one(tmp_path: Path) -> None:
    sent = program(["boot", "padded"], PATIENT, [padded(tmp_path, 100_000)], on_stdin=False)
    assert 100_000 < len(sent.command) <= ARGUMENT
    assert script_of(sent.command) == sent.command


def test_modules_that_travel_as_one_text_have_all_that_they_import() -> None:
    with pytest.raises(ValueError, match=r"sending\.py imports pattern; expected it to travel along"):
        joined((AGENT / "sending.py",))
    assert "class Pattern" in joined((AGENT / "pattern.py", AGENT / "sending.py"))
