"""Writes the files of a new check or a new kind of evidence. Nothing that is there is overwritten."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from clusterproof.plugins.core.result import SUBSYSTEMS

CHECK = '''"""SUBJECT."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evaluation.routing import evidence

pytestmark = [mark.{subsystem}, mark.preflight]


@mark.hyperpod_node_debugger("I")
@evidence("COMMAND THAT SHOWS THE SAME BY HAND")
def test_{name}(node: Node) -> None:
    """WHAT IS WRONG WHERE THIS FAILS.

    WHY IT COSTS A TRAINING RUN.

    Remedy (investigate): WHAT TO DO.
    """
    observed = node.boot.kernel
    assert observed, f"OBSERVED {{observed}}; expected EXPECTED"
'''
FAULT = '''"""SUBJECT."""

from __future__ import annotations

from tests.faults.fault import FAIL, Fault
from tests.testbed.node import with_file

FAULTS = (
    Fault(
        "WHAT BREAKS",
        lambda image: with_file(image, "proc/sys/kernel/osrelease", ""),
        {{"{subsystem}.{name}": FAIL}},
        "; expected EXPECTED",
    ),
)
'''
KIND = '''"""SUBJECT."""
'''
COLLECT = '''"""SUBJECT: WHERE IT IS READ."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node


def read(node: Node) -> object:
    """WHAT IS READ."""
    return {{"version": node.text("/proc/version")}}
'''
FACTS = '''"""SUBJECT, typed."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.fact import collected_as
from clusterproof.plugins.evidence.field import Field, Reported, text


@record
class {type}(Reported):
    """SUBJECT."""

    version = Field(text)


{name} = collected_as("{name}", {type})  # in a check: {name}.of(node)
'''
DOCUMENTED = """
### `{name}` — WHERE IT IS READ
`{{"version": "…"}}`
"""
REDACTED = """
[{name}]
text = "version"
"""
OF_CLUSTERS = [name for name in SUBSYSTEMS if name != "run"]  # whose checks are asked of nodes
AFTER = "then: scripts/generate needs CHECK && scripts/generate && scripts/lint && scripts/faults && scripts/test quick"


def check(name: str) -> tuple[Mapping[str, str], Mapping[str, tuple[str, str]]]:
    """The files of a check, by path, and by path what is written before which line. Raises ValueError."""
    subsystem, _, own = name.partition(".")
    if subsystem not in OF_CLUSTERS or not re.fullmatch(r"[a-z][a-z0-9_]*", own):
        raise ValueError(f"{name!r} is no id of a check; expected {'|'.join(OF_CLUSTERS)} and a name: host.turbo")
    words = {"subsystem": subsystem, "name": own}
    files = {
        f"clusterproof/checks/{subsystem}/test_{own}.py": CHECK.format(**words),
        f"tests/faults/{own}.py": FAULT.format(**words),
    }
    return files, {"tests/faults/__init__.py": (f"    {own},\n", ")\n")}


def evidence(name: str) -> tuple[Mapping[str, str], Mapping[str, tuple[str, str]]]:
    """The files of a kind of evidence, by path, and by path what is written before which line. Raises ValueError."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{name!r} is no name of evidence; expected small letters, digits and _")
    words = {"name": name, "type": name.title().replace("_", "")}
    folder = f"clusterproof/plugins/evidence/{name}"
    files = {
        f"{folder}/__init__.py": KIND.format(**words),
        f"{folder}/collect.py": COLLECT.format(**words),
        f"{folder}/facts.py": FACTS.format(**words),
    }
    added = {
        "docs/evidence.md": (f"{DOCUMENTED.format(**words).lstrip()}\n", "## Collectors that load the hardware\n"),
        "clusterproof/plugins/redaction/kinds.toml": (f"{REDACTED.format(**words).lstrip()}\n", "[kernel]\n"),
    }
    return files, added


def write(root: Path, files: Mapping[str, str], added: Mapping[str, tuple[str, str]]) -> None:
    """Write the files, and add to those that are there. Raises ValueError, and then has written nothing."""
    there = [path for path in files if (root / path).exists()]
    if there:
        raise ValueError(f"{there[0]} is there already; expected a name that is new")
    texts = {path: (root / path).read_text(encoding="utf-8") for path in added}
    for path, (_, before) in added.items():
        if f"\n{before}" not in texts[path]:
            raise ValueError(f"{path} has no line {before.strip()!r}; expected one to write before")
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    for path, (more, before) in added.items():
        (root / path).write_text(texts[path].replace(f"\n{before}", f"\n{more}{before}"), encoding="utf-8")


def main(root: Path = Path()) -> int:
    """0 where all is written, 4 where a word is wrong."""
    parser = argparse.ArgumentParser(prog="scripts/new", description=__doc__)
    parser.add_argument("what", choices=["check", "evidence"])
    parser.add_argument("name")
    asked = parser.parse_args()
    try:
        files, added = (check if asked.what == "check" else evidence)(asked.name)
        write(root, files, added)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 4
    for path in (*files, *added):
        print(f"{'wrote' if path in files else 'added to'} {path}")
    print("words in capitals are to be filled in")
    print(AFTER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
