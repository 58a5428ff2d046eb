"""Reads a policy: from `--policy FILE`, else clusterproof.toml, else [tool.clusterproof] in pyproject.toml.

docs/policy.md describes the format. Every invalid entry is reported as a one-line error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

from clusterproof.plugins.catalog import PACKAGED, SITE, CatalogError, owners, thresholds
from clusterproof.plugins.catalog.rows import build
from clusterproof.plugins.core.cluster import InstanceType, InventoryError
from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.core.opened import NotOwnError, is_file
from clusterproof.plugins.core.policy import NO_POLICY, OWN_FILE, PYPROJECT, READINGS, Contact, Disabled, Policy
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.strict import Table, nearest, parse_toml, read_text
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.manifest import MANIFEST_TABLES, manifest_of

MAX_BYTES = 4 * 1024 * 1024  # a golden manifest of 3,000 packages has 0.2 million
TABLES = (
    "thresholds",
    "instance_type",
    "expect",
    "disabled",
    "verdicts",
    "mounts",
    "owners",
    "documentation",
    *MANIFEST_TABLES,
)


def find_policy(named: str | None, folder: Path, inventory: str = "") -> Policy:
    """The policy named on the command line, or found in the current folder; an empty one if there is neither.

    A policy found in the folder must belong to the caller or root. One next to an inventory in another folder is
    not read, and the user is told so. Raises InventoryError.
    """
    if named:
        return read_policy(folder / named)
    name = next((name for name in (OWN_FILE, PYPROJECT) if os.path.lexists(folder / name)), None)
    adjacent = Path(inventory).parent / OWN_FILE
    has_adjacent = inventory.endswith(".toml") and is_file(folder / adjacent)
    none = Policy(ignored=f"{adjacent} is not read; --policy {adjacent} does that") if has_adjacent else NO_POLICY
    if not name:
        return none
    if not is_file(folder / name):
        return Policy(ignored=f"{name} is ignored: it leads to no file; expected one, or --policy FILE")
    try:
        record = _toml(folder / name, is_own=True)
    except NotOwnError as why:
        return Policy(ignored=f"{name} is ignored: it {why.strerror}; --policy {name} reads it all the same")
    if name == OWN_FILE:
        return _policy(Table(name, record))
    tools = record.get("tool", {})
    if not isinstance(tools, Mapping) or "clusterproof" not in tools:
        return none
    return _policy(Table.of(f"{PYPROJECT} [tool.clusterproof]", tools["clusterproof"]))


def policy_as_written(named: str | None, folder: Path) -> tuple[str, dict[str, Any]]:
    """The text of the file that `find_policy` reads (empty if another program shares the file), and its TOML.

    Raises InventoryError.
    """
    name = named or (OWN_FILE if is_file(folder / OWN_FILE) else PYPROJECT)
    path = folder / name
    is_shared = path.name == PYPROJECT
    return "" if is_shared else read_text(path, "a policy (docs/policy.md)", MAX_BYTES), dict(_table(path).values)


def read_policy(path: Path) -> Policy:
    """Read the policy in a file. Raises InventoryError."""
    return _policy(_table(path))


def refuse_empty(named: str, folder: Path) -> None:
    """Reject an empty file, such as a failed command leaves behind `>`. Raises InventoryError.

    A command line that names a policy expects it to be applied; a prolog continues with the catalogue.
    """
    text, record = policy_as_written(named, folder)
    if not (text.strip() or record):
        raise InventoryError(f"{Path(named).name} is empty; expected a policy (docs/policy.md)")


def _table(path: Path) -> Table:
    """The table of a policy file: all of it, but of a pyproject.toml its own part. Raises InventoryError."""
    record = _toml(path)
    if path.name != PYPROJECT:
        return Table(path.name, record)
    tools = Table(PYPROJECT, record).table("tool").values
    if "clusterproof" not in tools:
        raise InventoryError(f"{PYPROJECT} has no [tool.clusterproof]; expected one")
    return Table.of(f"{PYPROJECT} [tool.clusterproof]", tools["clusterproof"])


def _toml(path: Path, *, is_own: bool = False) -> dict[str, Any]:
    text = read_text(path, "a policy (docs/policy.md)", MAX_BYTES, is_own=is_own)
    return parse_toml(text, path.name, "docs/policy.md")


def _policy(table: Table) -> Policy:
    table.only(*TABLES)
    mounts = table.table("mounts")
    mounts.only("expected", "checkpoints")
    return Policy(
        source=table.where,
        thresholds=_thresholds(table.table("thresholds")),
        instance_types=_instance_types(table.table("instance_type")),
        expect=table.expect(),
        disabled=_disabled(table.table("disabled")),
        readings=_readings(table.table("verdicts")),
        **manifest_of(table),
        mounts=_paths(mounts, "expected"),
        checkpoints=_paths(mounts, "checkpoints"),
        owners=_owners(table.table("owners")),
        site=_site(table.table("documentation")),
    )


def _thresholds(table: Table) -> dict[str, float]:
    """Thresholds by `table.key`."""
    thresholds: dict[str, float] = {}
    for name in table.values:
        if isinstance(table.values[name], (int, float)) and "." in str(name):
            first, _, key = str(name).partition(".")
            raise InventoryError(
                f"{table.where}: {name!r:.60} is one word; expected {key:.60} under [thresholds.{first:.60}]"
            )
        section = table.table(str(name))
        for key, value in section.values.items():
            thresholds[_known_threshold(f"{name}.{key}", table.where)] = _number(value, f"{section.where}: {key}")
    return thresholds


def _known_threshold(name: str, where: str) -> str:
    if name not in thresholds() and not name.startswith(SITE):
        hint = nearest(name, thresholds())
        raise InventoryError(f"{where}: there is no {name!r:.60}{hint}; docs/checks.md lists every threshold")
    return name


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
        raise InventoryError(f"{where} is {value!r:.40}; expected a number that is not negative")
    return float(value)


def _instance_types(table: Table) -> dict[str, InstanceType]:
    """Instance types that the site defines, or overrides from the catalogue, by their EC2 names."""
    rows: dict[str, InstanceType] = {}
    for key in table.values:
        row, name = table.table(str(key)), str(key).removeprefix("ml.")
        if name in rows:
            raise InventoryError(f"{table.where}: {name!r:.60} stands with and without ml.; expected one of them")
        _refuse_negative(row)
        record = {"name": name, "source": "policy", **row.values}
        try:
            own = build(InstanceType, record, row.where, {"policy": "the site's own policy"})
        except CatalogError as wrong:
            raise InventoryError(str(wrong)) from None
        known = PACKAGED.instance_type(name)
        rows[name] = replace(known, **{field: getattr(own, field) for field in record}) if known else own
    return rows


def _refuse_negative(row: Table) -> None:
    for name, value in row.values.items():
        numbers = value if isinstance(value, list) else [value]
        if any(isinstance(number, int) and number < 0 for number in numbers):
            raise InventoryError(f"{row.where}: {name} is {value!r:.40}; expected no negative number")


def _disabled(table: Table) -> dict[str, Disabled]:
    rules = {}
    for check in table.values:
        rule = table.table(str(check))
        rule.only("reason", "until", "nodes")
        until = rule.values.get("until")
        if not isinstance(until, date) or isinstance(until, datetime):
            shown = repr(until) if isinstance(until, str) else until
            seen = "there is no until" if until is None else f"until is {shown!s:.40}"
            raise InventoryError(f"{rule.where}: {seen}; expected a day, such as 2026-12-31, without quotes")
        rules[str(check)] = Disabled(rule.text("reason", default=None), until, _nodes(rule))
    return rules


def _nodes(rule: Table) -> frozenset[str]:
    """The nodes that a rule names; empty means all."""
    named = rule.text("nodes")
    try:
        return frozenset(expand(named)) if named else frozenset()
    except NodesetError as wrong:
        raise InventoryError(f"{rule.where}: nodes: {wrong}") from None


def _readings(table: Table) -> dict[str, dict[Verdict, Verdict]]:
    rules = {}
    for key in table.values:
        rule = table.table(str(key))
        rule.only(*(verdict.value for verdict in READINGS))
        rules[str(key)] = {Verdict(read): _reading(rule, Verdict(read)) for read in rule.values}
    return rules


def _reading(rule: Table, verdict: Verdict) -> Verdict:
    allowed = [other.value for other in READINGS[verdict]]
    word = rule.text(verdict.value)
    if word not in allowed:
        raise InventoryError(
            f"{rule.where}: {verdict.value} is read as {word!r:.40}; expected {' or '.join(allowed)} "
            "(to do without a check, disable it to a date)"
        )
    return Verdict(word)


def _owners(table: Table) -> dict[str, Contact]:
    """Contacts by team or by owner skill."""
    known = {row.name: row for row in owners().values()}
    teams = {team for row in known.values() for team in (row.team, *row.teams.values())}
    table.only(*sorted(teams), *known)
    rules = {}
    for key in table.values:
        row = table.table(str(key))
        row.only("name", "contact", "link")
        rules[str(key)] = Contact(row.text("name", default=None), row.text("contact"), _link(row, "link"))
    return rules


def _site(table: Table) -> str:
    """The URL of the documentation, ending in a slash; empty if not configured."""
    table.only("site")
    link = _link(table, "site")
    return f"{link.rstrip('/')}/" if link else ""


def _link(table: Table, key: str) -> str:
    link = table.text(key)
    if link and not link.startswith(("https://", "http://")):
        raise InventoryError(f"{table.where}: {key} is {link!r:.60}; expected one that begins with https://")
    return link


def _paths(table: Table, key: str) -> tuple[str, ...]:
    value = table.values.get(key, [])
    if not isinstance(value, list) or not all(isinstance(path, str) and path.startswith("/") for path in value):
        raise InventoryError(f"{table.where}: {key} is {value!r:.60}; expected a list of paths that begin with /")
    return tuple(dict.fromkeys(f"/{'/'.join(filter(None, path.split('/')))}" for path in value))  # /fsx/ is /fsx


def refuse_unknown(policy: Policy, checks: frozenset[str]) -> None:
    """Reject rules for unknown checks and owners. Raises InventoryError."""
    skills = {owner.name for owner in owners().values()}
    for table, names, known in (
        ("disabled", policy.disabled, checks),
        ("verdicts", policy.readings, checks | skills),
    ):
        for name in names:
            if name not in known:
                what = "check" if table == "disabled" else "check or owner"
                raise InventoryError(
                    f"{policy.source} [{table}]: {name!r:.60} is not a {what}{nearest(name, known)}; "
                    "docs/checks.md lists them all"
                )
