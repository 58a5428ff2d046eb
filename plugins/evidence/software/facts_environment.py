"""What jobs find in their environment, and which interfaces NCCL makes of it."""

from __future__ import annotations

from collections.abc import Iterable

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, flag, text, whole

NEVER_BY_ITSELF = ("lo", "docker")  # NCCL takes them only where nothing else is left, or where they are named


@record
class Variable(Reported):
    """One variable that a file of the node sets."""

    name = Field(text)
    value = Field(text)
    file = Field(text)
    line = Field(whole)
    conditional = Field(flag)  # it is set in some cases only, which the file alone does not show

    @property
    def where(self) -> str:
        """`/etc/environment line 3`. Raises Incomplete."""
        return f"{self.file} line {self.line}"


def chosen_interfaces(value: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of a node's interfaces that NCCL_SOCKET_IFNAME lets NCCL use.

    It is a list of prefixes; `=` before it makes them whole names, `^` before that excludes them (source:
    NCCL's user guide).
    """
    excludes = value.startswith("^")
    value = value.removeprefix("^")
    is_exact = value.startswith("=")
    wanted = [word for word in value.removeprefix("=").split(",") if word]

    def is_named(name: str) -> bool:
        return any(name == word if is_exact else name.startswith(word) for word in wanted)

    if excludes:
        return tuple(name for name in names if not is_named(name) and not name.startswith(NEVER_BY_ITSELF))
    return tuple(name for name in names if is_named(name))
