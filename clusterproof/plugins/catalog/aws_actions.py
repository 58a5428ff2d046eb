"""The actions of AWS that the suite may call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.rows import build, document
from clusterproof.plugins.core.record import record

FILE = "aws_actions.toml"


@record
class AwsAction:
    """One action: IAM's name for it, boto3's service and method, what it is needed for, and on which resources.

    `opt_in` is the option without which it is never called; `only_where` a key of IAM's and its value.
    """

    action: str
    service: str
    operation: str
    needed_for: str
    source: str
    on: tuple[str, ...] = ("*",)
    opt_in: str = ""
    only_where: tuple[str, ...] = ()


@cache
def aws_actions() -> Mapping[tuple[str, str], AwsAction]:
    """Every action by service and operation. Raises CatalogError."""
    data = document(FILE)
    rows = []
    for name, row in data["action"].items():
        words = {"action": name, **{key: value for key, value in row.items() if key != "for"}}
        rows.append(build(AwsAction, {**words, "needed_for": row.get("for")}, f"{FILE}: {name}", data["sources"]))
    return {(row.service, row.operation): row for row in rows}
