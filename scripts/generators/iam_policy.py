"""Generates the IAM policy of docs/aws.md from plugins/catalog/aws_actions.toml: `scripts/generate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clusterproof.plugins.catalog.aws import aws_actions

PATH = Path(__file__).parents[2] / "docs" / "aws.md"
BEGIN, END = "<!-- scripts/generate -->\n", "<!-- end -->"


def policy() -> dict[str, Any]:
    """A policy that allows only the suite's calls, with a statement for each set of resources."""
    statements: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for row in aws_actions().values():
        statements.setdefault((row.on, row.only_where), []).append(row.action)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": sorted(actions), "Resource": list(on), **_condition(only_where)}
            for (on, only_where), actions in statements.items()
        ],
    }


def _condition(only_where: tuple[str, ...]) -> dict[str, Any]:
    if not only_where:
        return {}
    key, value = only_where
    return {"Condition": {"StringEquals": {key: value}}}


def document() -> str:
    """The generated part of the page."""
    rows = [f"| `{row.action}` | {row.needed_for} |" for row in aws_actions().values()]
    lines = ["```json", json.dumps(policy(), indent=2), "```", "", "| action | needed for |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def in_place(text: str) -> str:
    """The page with that part replaced."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{document()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PATH.write_text(in_place(PATH.read_text(encoding="utf-8")), encoding="utf-8")
