"""Writes the files of a new check or a new kind of evidence; never overwrites a file."""

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
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.node import Node

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
COLLECT = '''"""SUBJECT: WHERE IT IS READ.

`{{"version": "…"}}`
"""

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
REDACTED = """[{name}]
text = "version"
"""
OF_CLUSTERS = [name for name in SUBSYSTEMS if name != "run"]  # subsystems whose checks run on nodes
AFTER = "then: scripts/generate needs CHECK && scripts/generate && scripts/lint && scripts/faults && scripts/test quick"


def check(name: str) -> Mapping[str, str]:
    """A check's files by path. Raises ValueError."""
    subsystem, _, own = name.partition(".")
    if subsystem not in OF_CLUSTERS or not re.fullmatch(r"[a-z][a-z0-9_]*", own):
        raise ValueError(f"{name!r} is no id of a check; expected {'|'.join(OF_CLUSTERS)} and a name: host.turbo")
    fields = {"subsystem": subsystem, "name": own}
    return {
        f"clusterproof/checks/{subsystem}/test_{own}.py": CHECK.format(**fields),
        f"tests/faults/{own}.py": FAULT.format(**fields),
    }


def evidence(name: str) -> Mapping[str, str]:
    """The files of a kind of evidence, by path. Raises ValueError."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{name!r} is no name of evidence; expected small letters, digits and _")
    fields = {"name": name, "type": name.title().replace("_", "")}
    folder = f"clusterproof/plugins/evidence/{name}"
    return {
        f"{folder}/__init__.py": KIND.format(**fields),
        f"{folder}/collect.py": COLLECT.format(**fields),
        f"{folder}/facts.py": FACTS.format(**fields),
        f"{folder}/redaction.toml": REDACTED.format(**fields),
    }


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write the files, or raise ValueError without writing any."""
    there = [path for path in files if (root / path).exists()]
    if there:
        raise ValueError(f"{there[0]} is there already; expected a name that is new")
    for path, text in files.items():
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")


def main(root: Path = Path()) -> int:
    """Return 0 if everything is written, 4 if an argument is wrong."""
    parser = argparse.ArgumentParser(prog="scripts/new", description=__doc__)
    parser.add_argument("what", choices=["check", "evidence"])
    parser.add_argument("name")
    options = parser.parse_args()
    try:
        files = (check if options.what == "check" else evidence)(options.name)
        write(root, files)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 4
    for path in files:
        print(f"wrote {path}")
    print("words in capitals are to be filled in")
    print(AFTER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
