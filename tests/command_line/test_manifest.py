"""`clusterproof manifest` overwrites no manifest, which somebody may have edited, and says no more than it may."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.manifest import command_line
from clusterproof.plugins.core.own_python import python_running
from clusterproof.plugins.inventory.file import DEMO

MAIN = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"


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


@pytest.mark.long
def test_why_a_node_of_anothers_recording_is_left_out_steers_no_terminal(tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path / "recording")
    file = tmp_path / "recording/nodes/gpu001.json"
    silent = {"collectors": {}, "unreached": "lost", "detail": "gone\x1b[2J\x1b]0;title\x07\u202e\nwrote x"}
    file.write_text(json.dumps({**json.loads(file.read_text()), **silent}))
    words = ["manifest", "--from", "replay:recording", "--out", "golden.toml"]
    ran = subprocess.run([*python_running(MAIN), *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "left out gpu001: lost gone\\x1b[2J\\x1b]0;title\\x07\\u202e wrote x\n" in ran.stderr


def test_a_redacted_manifest_does_not_say_what_its_machine_was_named_by(tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path / "hodgkin")
    words = ["manifest", "--from", "replay:hodgkin", "--nodes", "gpu001", "--redact"]
    ran = subprocess.run([*python_running(MAIN), *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert 'made_of = "node1 of cluster"\n' in ran.stdout
    assert "hodgkin" not in ran.stdout + ran.stderr
