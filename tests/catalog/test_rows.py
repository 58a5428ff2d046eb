"""The catalogue's files: read strictly, once, and from the parsed copy."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.catalog import (
    CatalogError,
    InstanceType,
    node,
    rows,
)
from clusterproof.plugins.catalog.rows import build, parse

xids_module: Any = importlib.import_module("clusterproof.plugins.catalog.nvidia")  # a function shadows its name
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"name": "x", "source": "ec2", "gpu": 8}, "x: unknown key 'gpu'; known are name, source, gpus"),
        ({"name": "x"}, "x: source is missing"),
        ({"name": "x", "source": ""}, "x: source '' is not explained"),
        ({"name": "x", "source": "ec2 rumour"}, "x: source 'rumour' is not explained"),
        ({"name": "x", "source": "ec2", "gpus": "8"}, "x: gpus is '8'; expected int | None"),
        ({"name": "x", "source": "ec2", "gpus": True}, "x: gpus is True; expected int | None"),
        ({"name": "x", "source": "ec2", "gpus": 8.0}, "x: gpus is 8.0; expected int | None"),
        (["x"], "x: expected a table"),
    ],
)
def test_a_row_that_is_not_right_is_one_clear_error(row: Any, message: str) -> None:
    with pytest.raises(CatalogError, match=f"^{re.escape(message)}"):
        build(InstanceType, row, "x", {"ec2": "the EC2 API"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sources\n", "x.toml: "),
        ("a = 1\n", "x.toml: expected a table [sources]"),
        ("[sources]\nec2 = ''\n", "x.toml: expected a table [sources]"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(CatalogError, match=f"^{re.escape(message)}"):
        parse(text, "x.toml")


def test_what_a_row_leaves_out_is_none() -> None:
    row = build(InstanceType, {"name": "x", "source": "ec2"}, "x", {"ec2": "the EC2 API"})
    assert {getattr(row, entry.name) for entry in fields(row)} == {"x", "ec2", None}


@pytest.mark.long
def test_importing_the_catalogue_reads_no_file_and_no_toml_parser() -> None:
    script = """if True:
        import sys
        from importlib.machinery import ModuleSpec
        from importlib.util import module_from_spec
        spec = ModuleSpec("clusterproof", None, is_package=True)
        spec.submodule_search_locations = [sys.argv[1]]
        sys.modules["clusterproof"] = module_from_spec(spec)
        opened = []
        sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
        import clusterproof.plugins.catalog
        print([file for file in opened if file.endswith(".toml")], {"tomllib", "tomli"} & set(sys.modules))
        """
    ended = subprocess.run([sys.executable, "-c", script, str(ROOT)], capture_output=True, text=True, check=True)
    assert ended.stdout == "[] set()\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    source: str
    numbers: tuple[int, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        ({"numbers": [1, 2]}, True),
        ({"numbers": [1, "2"]}, False),
        ({"numbers": {}}, False),
        ({"words": {"a": "b"}}, True),
        ({"words": {"a": 1}}, False),
        ({"words": []}, False),
    ],
)
def test_a_value_has_the_shape_of_its_field(data: dict[str, Any], fits: bool) -> None:
    row = {"source": "s", **data}
    if fits:
        assert build(Shaped, row, "here", {"s": "S"})
    else:
        with pytest.raises(CatalogError, match="expected"):
            build(Shaped, row, "here", {"s": "S"})


@pytest.mark.parametrize(
    ("code", "kind", "verdict"),
    [("x", "driver", "fail"), ("7", "nothing", "fail"), ("7", xids_module.KINDS[0], "well")],
)
def test_a_row_of_an_xid_has_a_number_a_kind_and_a_verdict(code: str, kind: str, verdict: str) -> None:
    row = xids_module._Row(name="n", kind=kind, verdict=verdict, action="a", source="s")
    with pytest.raises(CatalogError, match=f"xid {code}"):
        xids_module._xid(code, row, {})


@pytest.mark.parametrize(
    ("module", "rows", "data"),
    [
        (node, "needed_services", {"verdict": "well"}),
        (node, "needed_services", {"verdict": "fail", "instead_of": "nobody"}),
        (node, "environment_rules", {"where": "nowhere", "verdict": "fail"}),
        (node, "environment_rules", {"where": "always", "verdict": "well"}),
    ],
)
def test_a_row_with_a_word_that_nobody_knows_is_an_error(
    module: Any, rows: str, data: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = SimpleNamespace(**{"instead_of": "", **data})
    monkeypatch.setattr(module, "table", lambda *_arguments: {"x": row})
    with pytest.raises(CatalogError, match="x: expected"):
        getattr(module, rows).__wrapped__()


def test_what_is_read_fast_is_what_the_toml_says() -> None:
    files = list(Path(rows.FOLDER).glob("*.toml"))
    assert len(files) > 10
    for path in files:
        assert rows.document(path.name) == rows.parse(path.read_text(encoding="utf-8"), path.name), path.name


@pytest.mark.parametrize("text", ["", "{", "[]", '{"waits.toml": {"of": 1, "data": {"sources": {}}}}'])
def test_what_was_parsed_of_another_text_is_not_believed(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "parsed.json").write_text(text)
    monkeypatch.setattr(rows, "PARSED", tmp_path / "parsed.json")
    rows._parsed.cache_clear()
    try:
        assert rows.document.__wrapped__("waits.toml")["sources"]
    finally:
        rows._parsed.cache_clear()
