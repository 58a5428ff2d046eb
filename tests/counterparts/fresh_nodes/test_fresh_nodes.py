"""An administrator follows integrations/slurm/install.md: its commands run as written on fresh systems."""

from __future__ import annotations

import textwrap
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders.wheel import ROOT, clone_of
from tests.counterparts import installed
from tests.counterparts.system import System
from tests.testbed.needs import needs_nodes

NAME = "fresh_nodes"
DOCUMENT = ROOT / "integrations" / "slurm" / "install.md"
CHECKOUT = "root/clusterproof"  # where the administrator has it
STRANGERS = "clusterproof-99.0-py3-none-any.whl"  # on the index, uploaded by somebody who took the name
SETTINGS = "deadline_s = 8\n"  # it observes: this machine's kernel log may have faults

pytestmark = [needs_nodes, installed.needs(NAME)]


@dataclass(frozen=True)
class Fresh:
    """A system: its root, what its apt can reach, the words of its paragraph, and the Python it ends up with."""

    root: Path
    apt: Path | None
    words: str
    python: str


HERE = installed.folder(NAME)
SYSTEMS = [  # they take turns: other tests run the checks on each one's Python in a folder of its own
    pytest.param(
        Fresh(HERE / "bookworm", HERE / "apt" / "bookworm", "Debian 12 and 13", "3.11.2"),
        id="Debian 12",
        marks=pytest.mark.in_turn("Debian 12"),
    ),
    pytest.param(
        Fresh(HERE / "trixie", HERE / "apt" / "trixie", "Debian 12 and 13", "3.13."),
        id="Debian 13",
        marks=pytest.mark.in_turn("Debian 13"),
    ),
    pytest.param(
        Fresh(installed.folder("debian_bullseye") / "root", None, "(Debian 11, Ubuntu 20.04)", "3.11.11"),
        id="Debian 11",
        marks=[installed.needs("debian_bullseye"), pytest.mark.in_turn("Debian 11")],
    ),
]


def commands(phrase: str) -> str:
    """The commands below the paragraph with these words."""
    paragraphs = DOCUMENT.read_text(encoding="utf-8").split("\n\n")
    (place,) = [number for number, text in enumerate(paragraphs) if phrase in " ".join(text.split())]
    block = paragraphs[place + 1]
    assert block.startswith("    "), block
    return textwrap.dedent(block)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree to overlay on a system: a fresh checkout, settings, and a stranger's wheel on the index."""
    tree = tmp_path_factory.mktemp(NAME)
    clone_of(ROOT, tree / CHECKOUT)
    (tree / "etc" / "clusterproof").mkdir(parents=True)
    (tree / "etc" / "clusterproof" / "slurm.toml").write_text(SETTINGS)
    (tree / "index").mkdir()
    with zipfile.ZipFile(tree / "index" / STRANGERS, "w") as wheel:
        about = "clusterproof-99.0.dist-info"
        wheel.writestr("clusterproof/__init__.py", "raise SystemExit('a stranger')\n")
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: clusterproof\nVersion: 99.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return tree


def script(fresh: Fresh) -> str:
    """Everything that the administrator types in the checkout; only `pip wheel` reaches the index."""
    index = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/index PIP_DISABLE_PIP_VERSION_CHECK=1"
    look = commands("4. Look before switching it on.").strip()
    typed = [
        f"cd /{CHECKOUT}",
        commands(fresh.words),
        f"export {index}",
        commands("2. The wheels, once,"),
        "unset PIP_NO_INDEX PIP_FIND_LINKS",
        commands("3. On every node,"),
        "exec 2>&1; cd /; set +e",
        f"{look}; echo asked: $?",
        "SLURM_JOB_ID=42 /opt/clusterproof/bin/clusterproof-prolog; echo prolog: $?",
        "/opt/clusterproof/bin/clusterproof --version",
    ]
    return "set -e; exec 3>&1 1>&2\n" + "\n".join(typed).replace("exec 2>&1;", "exec 1>&3 2>&1;")


@pytest.mark.parametrize("fresh", SYSTEMS)
def test_the_commands_install_on_a_fresh_system_what_then_checks_the_node(fresh: Fresh, checkout: Path) -> None:
    layers = tuple(filter(None, (checkout, HERE / "given", fresh.apt)))
    ran = System(fresh.root, layers).run("HOME=/root", "/bin/sh", "-c", script(fresh))
    output = ran.stdout.decode()
    assert ran.returncode == 0, ran.stderr.decode()[-4000:]
    assert f"({fresh.python}" in output, output
    assert " checks evaluated (" in output
    assert "! slurmctld" in output  # there is no Slurm here
    assert "asked: 1\n" in output
    assert "prolog: 0\n" in output
    assert "no verdict" not in output
    assert "clusterproof 0." in output  # ours, whatever the index has under this name
