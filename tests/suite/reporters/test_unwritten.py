"""Where pytest's own reports cannot be written: a device or link stays, and no report is announced."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from clusterproof.plugins.suite.reporters import remove_half
from clusterproof.plugins.suite.reporters.bundle import write_bundle
from tests.builders.runs import LIGHT, Runs, saying
from tests.suite.reporters.devices import full_device

OPTIONS = pytest.mark.parametrize("options", [("--junitxml",), ("--self-contained-html", "--html")], ids=" ".join)


@OPTIONS
@pytest.mark.parametrize("is_link", [False, True], ids=["device", "link"])
def test_a_device_or_a_link_that_takes_no_report_stays(options: tuple[str, ...], is_link: bool, runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    device, named = full_device(runs.folder / "full"), runs.folder / "named"
    if is_link:
        named.symlink_to(device)
    else:
        named = device
    ended = runs.run("--cluster", str(runs.cluster([saying("gpu1", "pass")])), "--no-report", *options, str(named))
    assert ended.ret == 2
    assert (named.is_symlink(), stat.S_ISCHR(device.stat().st_mode)) == (is_link, True)
    output = " ".join(ended.stdout.str().split())
    assert f"warning: {options[-1]} is not whole: No space left on device; expected room for all of it" in output
    assert "generated" not in output.lower()


def test_half_a_file_is_removed_and_what_was_no_file_stays(tmp_path: Path) -> None:
    half, link, pipe = (tmp_path / name for name in ("half", "link", "pipe"))
    half.write_text("<testsuites")
    link.symlink_to(half)
    os.mkfifo(pipe)
    for path in (link, pipe, half, tmp_path / "nowhere"):
        remove_half(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_bundle_takes_no_device_and_no_links_place(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(tmp_path / "file")
    os.mkfifo(pipe)
    for path in (link, pipe):
        with pytest.raises(OSError, match="is not a regular file"):
            write_bundle(path, [], 0.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]
