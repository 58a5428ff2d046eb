"""Recorded nodes altered as no machine reports them: values of other types, out of range, hostile, dropped, doubled."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

Place = tuple[Any, Any]  # a container, and the key or index of one of its values

TEXTS = (
    "",
    " ",
    "NOT_SUPPORTED",
    "-1",
    "nan",
    "9" * 400,
    "x" * 5_000,
    "two\nlines",
    "\nFAIL        1 of 1 node (gpu001): forged",
    "a\r\nb\x1b[2J\x1b]0;title\x07\x00\x85\u2028",
    "</script><script>alert(1)</script>&]]>--",
    "| ` $(true) {0} %s \\ ' \"",
    "\ud800",
    "\u202egpu\u200b\U0001f600é",
    "0000:53:00.0",
    "ffff:ff:1f.7",
    "/" * 300,
    "../../etc/passwd",
    "1970-01-01T00:00:00Z",
    "99999-99-99",
    "[" * 200,
    "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.",
    "Linux version 6.8.0",
    "10.0.0.1@tcp:/fsx",
    "GPU-00000000-0000-0000-0000-000000000000",
    "0-191",
    "0-99999999999",
    "p5.48xlarge",
)
NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**64), 10**23, 10**300, 10**4000, 1e308, -1e308, 5e-324, 0.5, -0.0, 1e18)
NO_JSON = (float("nan"), float("inf"), float("-inf"))
WORDS = (
    "NOT_SUPPORTED",
    "FUNCTION_NOT_FOUND",
    "GPU_IS_LOST",
    "UNKNOWN",
    "RESET_REQUIRED",
    "ENOENT",
    "EACCES",
    "EIO",
    "ETIMEDOUT",
    "HTTP_403",
    "UNCOLLECTED",
    "no such word\n",
    "",
)
STATUSES = ("absent", "denied", "broke", "timed_out", "stuck", "uncollected", "not_asked")


def mutated(recorded: dict[str, Any], chance: random.Random, count: int) -> dict[str, Any]:
    """A recorded node (`evidence.to_json`) with this many changes; the node's own name stays."""
    changed = copy.deepcopy(recorded)
    for _ in range(count):
        if chance.random() < 0.05:
            _of_a_collector(changed, chance)
            continue
        holder, key = _place(changed, chance)
        chance.choice(_CHANGES)(holder, key, chance)
    return changed


def written(recorded: dict[str, Any]) -> str:
    """The node as JSON, with Python's notation for what JSON lacks."""
    return json.dumps(recorded)


def _of_a_collector(recorded: dict[str, Any], chance: random.Random) -> None:
    """Give a collector another outcome, or remove it."""
    name = chance.choice(sorted(recorded["collectors"]) or ["boot"])
    if chance.random() < 0.2:
        recorded["collectors"].pop(name, None)
    else:
        recorded["collectors"][name] = {
            "status": chance.choice(STATUSES),
            "detail": chance.choice(TEXTS),
            "seconds": 0.1,
        }


def _place(recorded: dict[str, Any], chance: random.Random) -> Place:
    """A random value in the collectors' results, with each collector and each depth equally likely."""
    collectors = [name for name, collector in recorded["collectors"].items() if "value" in collector]
    if not collectors:
        return recorded["probe"], "python"
    holder: Any = recorded["collectors"][chance.choice(collectors)]
    key: Any = "value"
    while isinstance(holder[key], (dict, list)) and holder[key] and chance.random() < 0.85:
        holder = holder[key]
        key = chance.choice(list(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))
    return holder, key


def _error(holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = {"error": chance.choice(WORDS), "text": chance.choice(TEXTS)}


def _text(holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = chance.choice(TEXTS)


def _number(holder: Any, key: Any, chance: random.Random) -> None:
    holder[key] = chance.choice(NUMBERS if chance.random() < 0.8 else NO_JSON)


def _other_type(holder: Any, key: Any, chance: random.Random) -> None:
    old = holder[key]
    lists: tuple[Any, ...] = ([], [old], [None], [[]], [{}])
    others: tuple[Any, ...] = (None, True, False, {}, {"value": old}, {"": 0}, str(old)[:200])
    holder[key] = chance.choice(lists + others)


def _dropped(holder: Any, key: Any, _chance: random.Random) -> None:
    if holder.__class__ is dict and "status" in holder and key == "value":
        holder[key] = None
    else:
        del holder[key]


def _doubled(holder: Any, key: Any, chance: random.Random) -> None:
    value = holder[key]
    if isinstance(value, list):
        holder[key] = value * chance.choice((2, 40)) if len(value) < 100 else value * 2
    elif isinstance(holder, list):
        holder.insert(key, copy.deepcopy(value))
    else:
        holder[key] = [value, value]


def _emptied(holder: Any, key: Any, _chance: random.Random) -> None:
    value = holder[key]
    holder[key] = type(value)() if isinstance(value, (dict, list, str)) else 0


def _deep(holder: Any, key: Any, chance: random.Random) -> None:
    value = holder[key]
    for _ in range(chance.choice((3, 30, 150))):
        value = [value] if chance.random() < 0.5 else {"error": value}
    holder[key] = value


def _exchanged(holder: Any, key: Any, chance: random.Random) -> None:
    if isinstance(holder, dict) and "status" in holder and key == "value":
        return
    other = chance.choice(list(holder)) if isinstance(holder, dict) else chance.randrange(len(holder))
    holder[key], holder[other] = holder[other], holder[key]


_CHANGES: tuple[Callable[[Any, Any, random.Random], None], ...] = (
    _error,
    _error,
    _text,
    _text,
    _number,
    _number,
    _other_type,
    _other_type,
    _dropped,
    _doubled,
    _emptied,
    _deep,
    _exchanged,
)
