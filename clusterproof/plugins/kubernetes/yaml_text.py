"""YAML as kubectl prints it, whose numbers are left as text, as quantities are."""

from __future__ import annotations

from typing import Any

import yaml

from clusterproof.plugins.evidence.parsing import CaptureError

MAX_VALUES = 2_000_000  # an alias counts each time
WORDS = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:null")
TAGS = (*WORDS, "tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map", None)  # None refuses others


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Takes nothing but booleans and null for more than a text."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        letter: [(tag, pattern) for tag, pattern in resolvers if tag in WORDS]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {tag: yaml.SafeLoader.yaml_constructors[tag] for tag in TAGS}  # noqa: RUF012


def document(text: str) -> object:
    """The first document of a text. Raises CaptureError."""
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
    """Raises CaptureError where there is more than a cluster has to say: aliases make much of little."""
    left, count = [data], 0
    while left:
        value = left.pop()
        count += 1
        if count > MAX_VALUES:
            raise CaptureError(f"its YAML has more than {MAX_VALUES:,} values")
        left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
