"""What the documents and integrations say about installing clusterproof on a machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "docs", "clusterproof")
INSTALLS = re.compile(r"\bpip(?:3|x)? +install\b[^`\n]*")
OUR_NAME = re.compile(r"(?<![\w./-])clusterproof(?:\[\w+\])?(?![\w./*-])")


def commands() -> list[str]:
    """Every `pip install …` that a user could copy, or that runs automatically."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "--", *DOCUMENTS]
    named = subprocess.run(listed, capture_output=True, text=True, check=False)
    if named.returncode:
        pytest.skip("not a git checkout: which files are ours is not known")
    files = (ROOT / name for name in named.stdout.splitlines() if not name.endswith((".png", ".sqlite")))
    texts = (file.read_text(encoding="utf-8") for file in files if file.is_file())
    return [command for text in texts for command in INSTALLS.findall(text)]


def test_no_document_installs_from_an_index_what_no_index_has_of_ours() -> None:
    """Whoever takes the name there would be root on each node."""
    documented = commands()
    assert len(documented) > 3
    named = [command for command in documented if OUR_NAME.search(command.partition(" install ")[2])]
    assert [command for command in named if "--no-index" not in command] == []
