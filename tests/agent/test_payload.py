"""The program reaches every node: small, through any shell, with any Python, and complete."""

from __future__ import annotations

import ast
import builtins
import ctypes
import os
import re
import shutil
import subprocess
import symtable
import sys
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from clusterproof.plugins.agent import nvidia_ml, payload
from clusterproof.plugins.agent.frame import decode
from clusterproof.plugins.agent.parts import parts
from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import DEADLINE_FACTORS, ProbeOptions, collector_names, files
from clusterproof.plugins.core.evidence import Status, Unreached
from clusterproof.plugins.transport import Answer, Program
from clusterproof.plugins.transport.ssm import LONGEST_PROGRAM
from tests.agent.node_side import NODE_SIDE
from tests.builders.probed import PATH, PATIENT, answer, probe
from tests.builders.pythons import interpreters
from tests.testbed.needs import needs_root

DOCUMENT = (Path(__file__).parents[2] / "docs/evidence.md").read_text("utf-8").partition("## Collectors that")[0]
COLLECTORS = tuple(sorted(re.findall(r"^### `(\w+)` — ", DOCUMENT, re.MULTILINE)))
TRAVELS = re.compile(r"clusterproof\.plugins\.evidence\.\w+\.collect(_\w+)?")


def stand_in(folder: Path, name: str, script: str) -> str:
    """A program of that name, first on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return f"{folder}:{PATH}"


def no_python(folder: Path, version: str) -> str:
    """A PATH on which every python is as old as this."""
    for name in ("python3", *(f"python3.{n}" for n in range(8, 15))):
        path = stand_in(folder, name, f'[ "$1" = -V ] && echo Python {version} && exit; exit 97')
    return path


def test_every_collector_is_documented() -> None:
    assert len(collector_names()) > 25
    assert collector_names() == COLLECTORS
    assert set(DEADLINE_FACTORS) <= set(collector_names())


@pytest.mark.long
@pytest.mark.parametrize("sudo", [False, True])
def test_all_collectors_take_at_most_two_commands_of_systems_manager(
    sudo: bool, record_property: Callable[[str, object], None]
) -> None:
    options = ProbeOptions(sudo=sudo, host_root="/host")
    packed = parts(collector_names(), options, on_stdin=False, longest=LONGEST_PROGRAM)
    record_property("characters", [len(sent.command) for _, sent in packed.programs])
    assert len(packed.programs) <= 2
    assert packed.left_out == {}


@pytest.mark.parametrize("sudo", [False, True])
def test_the_command_survives_quoting_by_any_shell(sudo: bool) -> None:
    sent = program(["boot"], ProbeOptions(sudo=sudo))
    start, script, end = sent.command.split("'")
    assert (start, end) == ("/bin/sh -c ", "")
    assert not set(script) & set("!\\\n\r`")
    assert len(sent.command) < 1400


@pytest.mark.long
@pytest.mark.parametrize("shell", ["sh", "dash", "bash", "zsh", "ksh", "csh", "tcsh", "fish"])
@pytest.mark.parametrize("on_stdin", [True, False])
def test_it_runs_whatever_the_login_shell(shell: str, on_stdin: bool) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    sent = program(["boot"], PATIENT, on_stdin=on_stdin)
    evidence = decode("here", Answer(answer(sent, shell=(shell, "-c"))), sent.nonce)
    assert evidence.collectors["boot"].status is Status.READ


@pytest.mark.long
@pytest.mark.parametrize("python", interpreters())
def test_it_runs_under_every_python_since_3_8(python: str, tmp_path: Path) -> None:
    version = subprocess.run([python, "-V"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()[1]
    if tuple(map(int, version.split(".")[:2])) < (3, 8):
        pytest.skip(f"Python {version} is older than what the probe is for")
    evidence = probe(collector_names(), PATIENT, path=stand_in(tmp_path, "python3", f'exec {python} "$@"'))
    assert evidence.probe["python"] == version
    assert set(evidence.collectors) == set(COLLECTORS)
    assert [collector.detail for collector in evidence.collectors.values() if collector.status is Status.BROKE] == []
    assert evidence.collectors["boot"].value["hostname"] == os.uname().nodename


@pytest.mark.long
@pytest.mark.parametrize("script", ["exit 97", "exit 1", "exit 127", "echo broken >&2; exit 2"])
def test_a_python_that_is_too_old_or_does_not_start_is_passed_over(script: str, tmp_path: Path) -> None:
    evidence = probe(["boot"], PATIENT, path=stand_in(tmp_path, "python3", script))
    assert evidence.collectors["boot"].status is Status.READ


@pytest.mark.long
def test_a_python_without_bz2_is_passed_over_too(tmp_path: Path) -> None:
    blind = """shift 4; code="import sys;sys.modules['bz2']=None;$1"; shift"""
    path = stand_in(tmp_path, "python3", f'{blind}; exec {sys.executable} -I -S -B -c "$code" "$@"')
    assert probe(["boot"], PATIENT, path=path).collectors["boot"].status is Status.READ


@pytest.mark.long
def test_where_there_is_no_python_the_node_says_what_it_has(tmp_path: Path) -> None:
    evidence = probe(["boot"], PATIENT, path=no_python(tmp_path, "3.6.8"))
    assert evidence.unreached is Unreached.NO_PYTHON
    assert "python3 (Python 3.6.8)" in evidence.detail


def test_a_program_that_arrives_in_part_is_a_cut_answer() -> None:
    sent = program(["boot"], PATIENT)
    output = answer(Program(sent.command, sent.stdin[:-100]))
    assert decode("here", Answer(output), sent.nonce).unreached is Unreached.CUT


def test_input_after_the_program_is_not_waited_for() -> None:
    sent = program(["boot"], PATIENT)
    output = answer(Program(sent.command, sent.stdin + b"\nmore\n" * 9))
    assert decode("here", Answer(output), sent.nonce).collectors["boot"].status is Status.READ


@pytest.mark.long
@pytest.mark.parametrize(
    ("uid", "sudo", "expected"),
    [
        ("1000", 'shift; [ "$1" = true ] || echo ran >&2; exec "$@"', "used"),
        ("1000", "echo sudo: a password is required >&2; exit 1", "refused: sudo: a password is required"),
        ("1000", "cat >/dev/null; exit 1", "refused: "),
        ("0", "exit 1", ""),
    ],
    ids=["granted", "refused", "reads-input", "root"],
)
def test_sudo_is_used_where_it_is_permitted_and_reported_where_it_is_not(
    uid: str, sudo: str, expected: str, tmp_path: Path
) -> None:
    stand_in(tmp_path, "id", f"echo {uid}")
    evidence = probe(["boot"], ProbeOptions(sudo=True, collector_s=30.0), path=stand_in(tmp_path, "sudo", sudo))
    assert evidence.collectors["boot"].status is Status.READ
    assert evidence.probe["sudo"] == expected


@pytest.mark.long
def test_without_the_option_sudo_is_never_called(tmp_path: Path) -> None:
    stand_in(tmp_path, "id", "echo 1000")
    evidence = probe(["boot"], PATIENT, path=stand_in(tmp_path, "sudo", f"touch {tmp_path}/called; exit 1"))
    assert evidence.collectors["boot"].status is Status.READ
    assert not (tmp_path / "called").exists()


def test_every_program_has_a_nonce_of_its_own_and_the_text_is_built_once() -> None:
    first, second = program(["boot"], PATIENT), program(["boot"], PATIENT)
    assert first.nonce != second.nonce
    assert first.stdin == second.stdin
    assert payload.payload(frozenset(["boot"]), PATIENT) is payload.payload(frozenset(["boot"]), PATIENT)


@pytest.mark.long
def test_only_what_is_asked_for_travels() -> None:
    small, large = (len(program(collectors, PATIENT).stdin) for collectors in (["boot"], ["boot", "nvml"]))
    assert small < large / 2


def test_a_collector_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="telepathy is not a collector"):
        program(["telepathy"], PATIENT)


@pytest.mark.parametrize("file", NODE_SIDE, ids=lambda file: file.stem)
def test_what_runs_on_a_node_is_python_3_8_and_the_standard_library(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 8))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    for module in imported:
        assert module
        assert (
            module.split(".")[0] in sys.stdlib_module_names
            or module.startswith(payload.PACKAGE)
            or TRAVELS.fullmatch(module)
            or (module == "pynvml" and "nvml" in file.stem)
        ), f"{file.name} imports {module}"


def part() -> str:
    sources = [Path(files()[name]).read_text() for name in ("nvml", "nvml_call", "nvml_gpu")]
    wanted = frozenset(word for source in sources for word in nvidia_ml.words(source))
    return nvidia_ml.reachable(nvidia_ml.pynvml_source(), wanted)


@pytest.mark.long
def test_the_part_of_pynvml_that_travels_is_a_part_of_it() -> None:
    whole = {ast.dump(statement) for statement in ast.parse(nvidia_ml.pynvml_source()).body}
    assert {ast.dump(statement) for statement in ast.parse(part()).body} <= whole
    assert len(part()) < 40_000 < 300_000 < len(nvidia_ml.pynvml_source())


def test_the_part_of_pynvml_has_all_that_it_names_itself() -> None:
    table = symtable.symtable(part(), "pynvml", "exec")
    has = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    missing = globals_of(table) - has - set(dir(ctypes)) - set(dir(builtins)) - {"__name__"}
    assert {name for name in missing if not name.startswith("NVMLError_")} == set()  # created at run time


def globals_of(table: symtable.SymbolTable) -> set[str]:
    names = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return names.union(*(globals_of(child) for child in table.get_children()))


@pytest.mark.long
def test_every_definition_of_pynvml_is_found() -> None:
    source = nvidia_ml.pynvml_source()
    defined = {name for name, value in vars(pynvml).items() if not name.startswith(("__", "NVMLError_"))}
    definitions = nvidia_ml.definitions(nvidia_ml.split(source))
    assert ast.dump(ast.parse("".join(nvidia_ml.split(source)))) == ast.dump(ast.parse(source))
    assert {name for name in defined if not hasattr(ctypes, name)} <= set(definitions)


@needs_root
@pytest.mark.parametrize("owner", [0, 41_001])
@pytest.mark.parametrize("link", [False, True])
def test_no_python_of_another_user_is_started_by_root(tmp_path: Path, owner: int, link: bool) -> None:
    folder = tmp_path / ("hers" if link else "bin")
    stand_in(folder, "python3", f'touch {tmp_path}/ran; exec {sys.executable} "$@"')
    for each in (folder, folder / "python3"):
        os.chown(each, owner, owner)
    if link:
        (tmp_path / "bin").symlink_to(folder)
    evidence = probe(["boot"], PATIENT, path=f"{tmp_path / 'bin'}:{PATH}")
    assert evidence.collectors["boot"].status is Status.READ
    assert (tmp_path / "ran").exists() == (owner == 0)
