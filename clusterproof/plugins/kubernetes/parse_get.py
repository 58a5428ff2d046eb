"""Parses `kubectl get nodes` as a table, JSON or YAML, into the form of the collector `k8s_nodes`.

Numbers in YAML stay text, because quantities are text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from clusterproof.plugins.evidence.field import UNCAPTURED
from clusterproof.plugins.evidence.kubernetes.facts import NODES
from clusterproof.plugins.evidence.parsing import CaptureError, Form, object_at, objects
from clusterproof.plugins.kubernetes.collectors.k8s_nodes import LABELS, entry
from clusterproof.plugins.kubernetes.nodes import node_of
from clusterproof.plugins.kubernetes.parse import MAX_NODES, is_bad, seconds

TABLE = re.compile(r"\s{0,80}NAME {2,253}STATUS {2,60}ROLES {2,80}AGE {2,40}VERSION\b")
LISTED = re.compile(r'^NAME {2,253}STATUS {2,60}ROLES |"kind": ?"Node"|^(?:  )?kind: Node$', re.MULTILINE)
_ROW = re.compile(
    r"^([a-z0-9][a-z0-9.-]{0,252}) {2,253}(Ready|NotReady|Unknown)(,SchedulingDisabled)? {2,60}"
    r"\S{1,200} {2,80}(?:\w{1,20}|<\w{1,20}>)(?: {2,40}(v\d{1,3}\.\S{1,60}))?(?: .{0,1000})?$",
    re.MULTILINE,
)
_HEADING = re.compile(r"(?<= )[A-Z.-]{2,60}(?= |$)")
_VALUE = re.compile(r"(?:[A-Za-z0-9][\w.-]{0,62})?(?= |$)")
_JSON = re.compile(r'\s{0,80}\{(?=[\s\S]{0,20000}"kind": ?"(?:Node|NodeList|List)")')
_YAML = re.compile(r"\s{0,80}(?:---\n)?apiVersion: v1\n(?=[\s\S]{0,2000000}^(?:  )?kind: Node$)", re.MULTILINE)
_BEHIND = re.compile(r"\s*\{")  # of an object: another
_OBJECT = re.compile(r"^(?:---\n)?(?=apiVersion: v1\n)", re.MULTILINE)  # where one begins, printed by itself or not
_EVENTS = re.compile(r"(?:NAMESPACE {2,80})?LAST SEEN {2,40}(?:TYPE {2,40})?(?:COUNT {2,40})?REASON {2,80}OBJECT\b")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
NOT_TRUE = "not True"  # Ready in the table: False or Unknown
# What the table does not show.
UNSHOWN = ("capacity", "allocatable", "taints", "labels")


def listed_in(text: str) -> dict[str, str]:
    """The nodes in one output, up to MAX_NODES plus one; none if it is no such list.

    A table or JSON only counts at the beginning: further down it may be users' text.
    """
    if TABLE.match(text):
        head = text.lstrip().partition("\n")[0]
        return {row[1]: f"{head}\n{row[0]}\n" for row, _ in zip(_ROW.finditer(text), range(MAX_NODES + 1))}  # noqa: B905
    if not (_JSON.match(text) or _YAML.match(text)):
        return {}
    try:
        resources = _json_in(text) if _JSON.match(text) else _yaml_in(text)
    except CaptureError:
        return {}
    named = ((node_of(resource).name, resource) for resource in resources[: MAX_NODES + 1])
    return {name: json.dumps(resource) for name, resource in named if name}


def is_table(text: str) -> bool:
    """Whether this is the table of `kubectl get nodes`, with or without -o wide."""
    return bool(TABLE.match(text) and _ROW.search(text))


def read_table(text: str) -> Mapping[str, object]:
    """The collector `k8s_nodes`: nodes not ready or cordoned, and labels that -L shows.

    The table does not prove that others are healthy.
    """
    columns = _label_columns(text.lstrip().partition("\n")[0])
    rows = list(_ROW.finditer(text))[:MAX_NODES]
    nodes = [_of_row(*row.groups()) | _labels_in(row[0], columns) for row in rows]
    return {NODES: {"asked_at": 0.0, "nodes": nodes}}


def _label_columns(header: str) -> dict[int, str]:
    """Where the columns of known labels begin, whose headings kubectl makes of their keys: `NODE-HEALTH-STATUS`."""
    of_heading = {label.rpartition("/")[2].upper(): own for label, own in LABELS.items()}
    return {word.start(): of_heading[word[0]] for word in _HEADING.finditer(header) if word[0] in of_heading}


def _labels_in(row: str, columns: Mapping[int, str]) -> dict[str, Any]:
    """The labels in these columns; all others are unread. Nothing if the table has no such column."""
    values = {own: _VALUE.match(row, start) for start, own in columns.items() if row[start - 1 : start] in ("", " ")}
    shown = {own: value[0] for own, value in values.items() if value}
    return {"labels": {**{own: {"error": UNCAPTURED} for own in LABELS.values()}, **shown}} if columns else {}


def _of_row(name: str, status: str, cordon: str, version: str | None) -> dict[str, Any]:
    ready = [{"type": "Ready", "status": NOT_TRUE}] if status == "NotReady" else []
    described = {
        "metadata": {"name": name},
        "spec": {"unschedulable": bool(cordon)},
        "status": {"conditions": ready, "nodeInfo": {"kubeletVersion": version or ""}},
    }
    shown = {key: value for key, value in entry(node_of(described)).items() if key not in UNSHOWN}
    return {**shown, "asked_at": 0.0}


def is_json(text: str) -> bool:
    """Whether this is the output of `kubectl get nodes -o json`, for one or several nodes."""
    return bool(_JSON.match(text)) and '"Node"' in text


def read_json(text: str) -> Mapping[str, object]:
    """The collector `k8s_nodes`, from the API's form. Raises CaptureError."""
    nodes = list(map(_of_resource, _json_in(text)[:MAX_NODES]))
    if not nodes:
        raise CaptureError("its JSON lists no node")
    return {NODES: {"asked_at": max(node["asked_at"] for node in nodes), "nodes": nodes}}


def _json_in(text: str) -> list[dict[str, Any]]:
    """The nodes in kubectl's output, and in others behind it. Raises CaptureError."""
    nodes: list[dict[str, Any]] = []
    begin = max(text.find("{"), 0)
    while begin >= 0 and len(nodes) <= MAX_NODES:
        printed, end = object_at(text, begin)
        nodes += _resources(printed)
        behind = _BEHIND.match(text, end)
        begin = behind.end() - 1 if behind else -1
    return nodes


def _of_resource(resource: Mapping[str, Any]) -> dict[str, Any]:
    node = node_of(resource)
    heard = [condition.heard for condition in node.conditions if _TIME.fullmatch(condition.heard)]
    try:
        collected_at = seconds(max(heard, default=""))
    except ValueError:  # for example the 31st of a month without one
        collected_at = 0.0
    return {**entry(node), "asked_at": collected_at}


def _resources(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The nodes in kubectl's output."""
    items = [document] if document.get("kind") == "Node" else objects(document.get("items"))
    return [item for item in items if item.get("kind") == "Node"]


def is_yaml(text: str) -> bool:
    """Whether this is the output of `kubectl get nodes -o yaml`, for one or several nodes."""
    return bool(_YAML.match(text))


def read_yaml(text: str) -> Mapping[str, object]:
    """The collector `k8s_nodes`, from the API's form. Raises CaptureError."""
    nodes = list(map(_of_resource, _yaml_in(text)[:MAX_NODES]))
    if not nodes:
        raise CaptureError("its YAML lists no node")
    return {NODES: {"asked_at": max(node["asked_at"] for node in nodes), "nodes": nodes}}


def _yaml_in(text: str) -> list[dict[str, Any]]:
    """The nodes in kubectl's output, and in others behind it. Raises CaptureError."""
    return [node for printed in filter(str.strip, _OBJECT.split(text)) for node in _of_yaml(printed)]


def _of_yaml(text: str) -> list[dict[str, Any]]:
    """The nodes in one output. If a node's last lines are missing, healthy conditions prove nothing: others may be
    missing too.
    """
    printed = document(text)
    if not isinstance(printed, dict):
        raise CaptureError("its YAML is no object")
    nodes = _resources(printed)
    for resource in nodes:
        status = resource.get("status")
        if isinstance(status, dict) and "nodeInfo" not in status:
            status["conditions"] = [row for row in objects(status.get("conditions")) if _says_ill(row)]
    return nodes


def _says_ill(row: Mapping[str, Any]) -> bool:
    return is_bad({key: str(row.get(key)) for key in ("type", "status")})


def is_events(text: str) -> bool:
    """Whether this is the output of `kubectl get events`."""
    return bool(_EVENTS.match(text))


def refuse(_text: str) -> Mapping[str, object]:
    """Raises CaptureError."""
    raise CaptureError("whoever may create events chooses their words; expected kubectl get nodes -o json, and dmesg")


FORMS = (
    Form("kubectl get nodes", is_table, read_table, 40),
    Form("kubectl get nodes -o json", is_json, read_json, 55),
    Form("kubectl get nodes -o yaml", is_yaml, read_yaml, 55),
    Form("kubectl get events", is_events, refuse),
)


MAX_VALUES = 2_000_000  # each use of an alias counts
WORDS = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null")
TAGS = (*WORDS, "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map", None)  # None: no others


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Resolves only booleans and null; everything else stays text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        letter: [(tag, pattern) for tag, pattern in resolvers if tag in WORDS]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {tag: yaml.SafeLoader.yaml_constructors[tag] for tag in TAGS}  # noqa: RUF012


def document(text: str) -> object:
    """The first document in a text. Raises CaptureError."""
    loader = _Loader(text)
    try:
        data = loader.get_data()
    except Exception as problem:  # `!!bool zz` is a KeyError
        mark = getattr(problem, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise CaptureError(f"its YAML is not understood{where}, it may be cut") from None
    finally:
        loader.dispose()
    _count(data)
    return data


def _count(data: Any) -> None:
    """Raises CaptureError for more values than a cluster can have: aliases expand quickly."""
    left, count = [data], 0
    while left:
        value = left.pop()
        count += 1
        if count > MAX_VALUES:
            raise CaptureError(f"its YAML has more than {MAX_VALUES:,} values")
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
