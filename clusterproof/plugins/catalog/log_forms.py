"""The meaning of kernel log lines: their patterns (kernel_log.toml), and relevant crashes (crashes.toml)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import build, document, table
from clusterproof.plugins.core.record import record

FILE = "kernel_log.toml"
USERS = ("any user", "device user")
_PART = re.compile(r"\{([a-z]\w*)\}")  # a quantifier begins with a digit


@record
class LogForm:
    """One pattern of lines; kernel_log.toml says what each column means."""

    name: str
    form: str
    scope: str
    verdict: str
    source: str
    check: str = ""
    meaning: str = ""
    action: str = ""
    cleared_by: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    rate: str = ""
    who: str = ""
    needs: str = ""
    event: str = ""

    @property
    def label(self) -> str:
        """Its name for people, like the number of an Xid: `nvme timeout`; empty if the line is self-explanatory."""
        return self.name.replace("_", " ") if self.meaning else ""

    @property
    def is_of_user(self) -> bool:
        """Whether a user can cause it without the fault."""
        return self.who in USERS


@record
class Crashes:
    """The processes whose crashes matter, by prefix."""

    processes: tuple[str, ...]
    libraries: tuple[str, ...]
    source: str


@cache
def log_forms() -> Mapping[str, LogForm]:
    """Every form by name, in matching order; each is created on first use."""
    return table(LogForm, FILE, "form", "name")


@cache
def patterns() -> Mapping[str, str]:
    """The regular expression of every form by name, with named parts inserted."""
    whole = document(FILE)
    parts = whole["part"]

    def expanded(form: str) -> str:
        while _PART.search(form):
            form = _PART.sub(lambda part: parts[part[1]], form)
        return form

    return {name: expanded(row["form"]) for name, row in whole["form"].items()}


@cache
def referenced_forms() -> frozenset[str]:
    """The forms that end others, or that others depend on."""
    rows = document(FILE)["form"].values()
    return frozenset(name for row in rows for name in (*row.get("cleared_by", ()), *row.get("after", ())))


def is_crash_of_training(process: str, library: str) -> bool:
    """Whether the crash of a process, in a library, affects training."""
    crashes = _crashes()
    return process.lower().startswith(crashes.processes) or library.lower().startswith(crashes.libraries)


@cache
def _crashes() -> Crashes:
    whole = document("crashes.toml")
    return build(Crashes, whole["crash"], "crashes.toml: crash", whole["sources"])
