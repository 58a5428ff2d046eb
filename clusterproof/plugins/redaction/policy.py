"""Redacts a site's policy: for evaluating checks, and as a file to share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Any, TypeAlias

from clusterproof.plugins.core.nodeset import expand, fold
from clusterproof.plugins.core.policy import Policy

_TYPES = "instance_type"
_DISABLED = "disabled"
_VERSIONS = "versions"
_OF_VERSIONS = (_VERSIONS, "sizes")  # tables of rules with numbers


Shown: TypeAlias = Callable[[str], str]  # redacts a text


def without_names(policy: Policy, text: Shown, type_: Shown, version: Shown, node: Shown) -> Policy:
    """The same rules; `type_` redacts the name of an instance type, `version` a rule about one, `node` a node."""
    types = [replace(row, name=type_(name)) for name, row in policy.instance_types.items()]
    return replace(
        policy,
        source="the policy" if policy.source else "",
        instance_types={row.name: row for row in types},
        made_on=type_(policy.made_on),
        disabled={
            check: replace(rule, reason=text(rule.reason), nodes=frozenset(map(node, rule.nodes)))
            for check, rule in policy.disabled.items()
        },
        versions={text(name): version(rule) for name, rule in policy.versions.items()},
        mounts=tuple(map(text, policy.mounts)),
        checkpoints=tuple(map(text, policy.checkpoints)),
        owners={},
        site="",
    )


def file_without_names(record: Mapping[str, Any], text: Shown, type_: Shown, version: Shown, node: Shown) -> str:
    """The file as TOML, without comments."""
    tables = {key: _table(key, value, text, type_, version) for key, value in record.items()}
    for check, rule in record.get(_DISABLED, {}).items():
        if "nodes" in rule:
            tables[_DISABLED][check]["nodes"] = fold(map(node, expand(rule["nodes"])))
    return as_toml(tables)


def _table(name: str, section: Any, text: Shown, type_: Shown, version: Shown) -> Any:
    if not isinstance(section, dict):
        return in_all_texts(section, text)
    shown = type_ if name == _TYPES else text if name == _VERSIONS else str
    of_value = version if name in _OF_VERSIONS else text
    values = {shown(key): in_all_texts(value, of_value) for key, value in section.items()}
    return {key: type_(section[key]) if (name, key) == ("manifest", _TYPES) else value for key, value in values.items()}


def in_all_texts(value: Any, change: Shown) -> Any:
    """The same value with every text redacted."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [in_all_texts(entry, change) for entry in value]
    if isinstance(value, dict):
        return {key: in_all_texts(entry, change) for key, entry in value.items()}
    return value


def as_toml(record: Mapping[str, Any]) -> str:
    """Tables of plain values as TOML."""
    return "\n".join(_lines(record, ())) + "\n"


def _lines(record: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[str]:
    plain = {key: value for key, value in record.items() if not isinstance(value, dict)}
    if plain and above:
        yield f"[{'.'.join(map(_quoted, above))}]"
    yield from (f"{_quoted(key)} = {_plain(value)}" for key, value in plain.items())
    for key, value in record.items():
        if isinstance(value, dict):
            yield from _lines(value, (*above, key))


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_quoted(key)} = {_plain(entry)}' for key, entry in value.items())}}}"
    return value.isoformat() if isinstance(value, date) else _quoted(value)


def _quoted(value: Any) -> str:
    """JSON and TOML agree on numbers, booleans and texts, except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
