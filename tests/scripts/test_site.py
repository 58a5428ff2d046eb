"""The documentation as a site: it builds strictly, has a page for each check, and needs no network to read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.options.table import GROUPS
from scripts.generators.site import write
from tests.builders.runs import ROOT

pytestmark = [pytest.mark.long, pytest.mark.any_user]

BUILD = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]+src=[\"'](?:https?:)?//|<link[^>]+stylesheet[^>]+href=[\"'](?:https?:)?//"
)
SHOWN = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    write(folder / "source")
    built = subprocess.run([*BUILD, folder / "source" / "docs", folder / "html"], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder / "html"


def test_each_check_has_a_page_with_all_that_is_known_of_it(site: Path) -> None:
    pages = {path.stem for path in (site / "checks").glob("*.html")}
    assert pages == set(all_checks())
    text = (site / "checks" / "network.memlock.html").read_text(encoding="utf-8")
    for part in ("Locked memory limit", "memlock.minimum_gib", "proven on"):
        assert part in text


def test_the_reference_has_every_option(site: Path) -> None:
    text = (site / "reference" / "options.html").read_text(encoding="utf-8")
    assert [option.flag for group in GROUPS.values() for option in group if option.flag not in text] == []


def test_no_page_loads_anything_from_a_network(site: Path) -> None:
    loaded_by_page = {page.name: LOADED.findall(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    assert len(loaded_by_page) > len(all_checks())
    assert {name: loaded for name, loaded in loaded_by_page.items() if loaded} == {}


def test_the_search_finds_words_without_a_server(site: Path) -> None:
    """The index is a script, which a page opened from a disk may load."""
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert index.startswith("Search.setIndex(")
    assert "memlock" in index


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "conf.py").write_text((ROOT / "docs" / "conf.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "index.md").write_text("# A page\n\n[nowhere](nowhere.md)\n", encoding="utf-8")
    built = subprocess.run([*BUILD, tmp_path, tmp_path / "html"], capture_output=True, text=True)
    assert built.returncode != 0
    assert "nowhere" in built.stderr


def test_the_tutorial_shows_what_the_demo_prints(tmp_path: Path) -> None:
    shown = SHOWN.findall((ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "pytest", "--cluster", "demo", "--no-report", "-p", "no:cacheprovider"]
    env = {"PATH": "/usr/bin:/bin", "COLUMNS": "80", "HOME": str(tmp_path), "PYTHONUTF8": "1"}
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, encoding="utf-8")
    assert ran.returncode == 1, ran.stderr
    assert len(shown) == 2
    for block in shown:
        assert block in ran.stdout


def test_each_block_of_code_has_a_button_that_copies_it_without_a_network(site: Path) -> None:
    text = (site / "tutorial.html").read_text(encoding="utf-8")
    scripts = [site / name.split("?")[0] for name in re.findall(r'<script src="(_static/[^"]+)"', text)]
    assert "copybutton.js" in {path.name for path in scripts}
    assert [path.name for path in scripts if not path.is_file()] == []
