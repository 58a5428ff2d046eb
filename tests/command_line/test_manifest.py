"""`clusterproof manifest --out FILE` does not overwrite a manifest, which somebody may have edited."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.command_line.manifest import command_line


def configured(out: Path) -> None:
    _, writer = command_line(["--from", "demo", "--out", str(out)], Path())
    writer.pytest_configure(pytest.Config.fromdictargs({}, []))


def test_a_manifest_that_is_there_is_refused_before_any_node_is_asked(tmp_path: Path) -> None:
    out = tmp_path / "golden.toml"
    out.write_text("# by hand\n")
    with pytest.raises(pytest.UsageError, match="is there already: nothing was written; expected the name"):
        configured(out)
    assert out.read_text() == "# by hand\n"


@pytest.mark.parametrize("content", ["", None], ids=["empty", "none"])
def test_an_empty_file_is_as_good_as_none(content: str | None, tmp_path: Path) -> None:
    out = tmp_path / "golden.toml"
    if content is not None:
        out.write_text(content)
    configured(out)
