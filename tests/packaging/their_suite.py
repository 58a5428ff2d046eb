"""Another project's test suite with names like ours."""

from __future__ import annotations

from pathlib import Path

SUITE = {
    "pytest.ini": "[pytest]\naddopts = --strict-markers\nmarkers =\n    gpu: one\n    network: slow\n    perf: no\n",
    "conftest.py": """
        import pytest

        @pytest.fixture
        def gpu():
            return "their gpu"

        @pytest.fixture(scope="session")
        def node():
            return "their node"

        @pytest.fixture
        def mount(tmp_path):
            yield str(tmp_path)
    """,
    "test_theirs.py": """
        import pytest

        pytestmark = [pytest.mark.gpu, pytest.mark.network]

        def test_gpu(gpu):
            assert gpu == "their gpu"

        def test_mount(mount):
            assert mount.startswith("/")

        @pytest.mark.perf
        def test_node(node):
            assert node == "their node"
    """,
}


def written(folder: Path, files: dict[str, str]) -> Path:
    """A folder with these files."""
    for name, text in files.items():
        first = len(text) - len(text.lstrip("\n "))
        indent = text[:first].rpartition("\n")[2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(line.removeprefix(indent) for line in text.split("\n")), encoding="utf-8")
    return folder
