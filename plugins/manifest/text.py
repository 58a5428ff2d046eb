"""Writes a golden manifest as TOML that a person reads, edits and keeps beside the image's recipe."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.printable import printable
from clusterproof.plugins.manifest.compose import Manifest

HEAD = """\
# Golden manifest of a machine image: pytest --cluster local -m ami --policy THIS_FILE
# It is a policy (docs/policy.md), so thresholds, exceptions and mounts of yours may stand here as well. What each rule
# means is in docs/images.md. It asks for just what the machine has: widen what may change, strike what does not matter.
"""
ABOUT = {
    "versions": """\
# "== 12.9" holds for 12.9.1 too: only the numbers given are compared. Also ">= 1.43", "1.43 to 1.50", "!= 2.27"
# (denied), several with commas, and "absent" (denied altogether).""",
    "modules": """\
# "loaded", "installed" (for the kernel that runs), "not loaded" or "absent".""",
    "libraries": """\
# "whole" (found, not empty, no link that leads nowhere) or "absent".""",
    "services": """\
# "active", "inactive", "enabled", "disabled", "static", "installed", several with commas; or "absent".""",
    "sizes": """\
# Of the instance type above; on another they are not applicable.""",
}
_BARE = re.compile(r"[A-Za-z0-9_-]+")
MAX_REASON = 160  # characters of why something is left out


def text_of(manifest: Manifest, day: str, source: str) -> str:
    """The whole file."""
    tables = (line for name in ABOUT for line in _table(manifest, name))
    return "\n".join([HEAD, *_about(manifest, day, source), *tables, ""])


def _about(manifest: Manifest, day: str, source: str) -> Iterator[str]:
    yield "[manifest]"
    yield f"made_of = {_quoted(f'{fold(manifest.made_of)} of {source}')}"
    yield f"made_on = {_quoted(day)}"
    if manifest.instance_type:
        yield f"instance_type = {_quoted(manifest.instance_type)}"


def _table(manifest: Manifest, name: str) -> Iterator[str]:
    rows, unknown = manifest.tables.get(name, {}), manifest.unknown.get(name, {})
    if not rows and not unknown:
        return
    yield from ("", f"[{name}]", ABOUT[name])
    yield from (f"{key if _BARE.fullmatch(key) else _quoted(key)} = {_quoted(rule)}" for key, rule in rows.items())
    if unknown:
        yield "# Not known, and left out:"
    for why, names in unknown.items():
        yield f"#   {', '.join(names)}: {_comment(why)}"


def _quoted(text: str) -> str:
    """A text as TOML's basic string, whatever a node put into it."""
    return json.dumps(printable(text, 200), ensure_ascii=False)


def _comment(text: str) -> str:
    return printable(text, MAX_REASON).replace("\n", " ")
