"""Reads the golden manifest of an image, which is part of a policy: a rule by name in each of its tables."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.strict import Table, nearest
from clusterproof.plugins.evidence.host.collect_services import WANTED as SERVICES
from clusterproof.plugins.evidence.network.collect_rdma import MODULES
from clusterproof.plugins.evidence.software.collect_versions import LOADED as LIBRARIES
from clusterproof.plugins.evidence.software.version import rules
from clusterproof.plugins.manifest import values as words

MANIFEST_TABLES = ("manifest", "versions", "modules", "libraries", "services", "sizes")


def manifest_of(table: Table) -> dict[str, Any]:
    """The fields of a policy that a manifest fills. Raises InventoryError."""
    about = table.table("manifest")
    about.only("made_of", "made_on", "instance_type")
    return {
        "made_on": about.text("instance_type"),
        "versions": _rows(table.table("versions"), (), _is_version_rule),
        "modules": _rows(table.table("modules"), MODULES, _one_of(words.MODULE)),
        "libraries": _rows(table.table("libraries"), LIBRARIES, _one_of(words.LIBRARY)),
        "services": _rows(table.table("services"), SERVICES, _all_of(words.SERVICE)),
        "sizes": _rows(table.table("sizes"), words.SIZES, rules),
    }


def _rows(table: Table, known: Collection[str], read: Callable[[str], object]) -> dict[str, str]:
    """A table's rules by name; `known` are the names that mean something, where not all do."""
    for name in table.values if known else ():
        if name not in known:
            raise InventoryError(
                f"{table.where}: the probe does not look at {name!r:.60}{nearest(name, known)}; "
                f"expected {', '.join(known)}"
            )
    data = {str(name): table.text(str(name)) for name in table.values}
    for name, rule in data.items():
        try:
            read(rule)
        except ValueError as wrong:
            raise InventoryError(f"{table.where}: {name}: {wrong}") from None
    return data


def _is_version_rule(rule: str) -> object:
    return rule == words.ABSENT or rules(rule)


def _one_of(known: Collection[str]) -> Callable[[str], object]:
    def read(rule: str) -> None:
        if rule not in known:
            raise ValueError(f"{rule!r:.60} is not a rule; expected {' or '.join(known)}")

    return read


def _all_of(known: Collection[str]) -> Callable[[str], object]:
    def read(rule: str) -> None:
        for word in words.listed(rule):
            _one_of(known)(word)

    return read
