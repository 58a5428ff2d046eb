"""Prometheus' own programs on the metrics: promtool's linter, and node_exporter's textfile collector."""

from __future__ import annotations

import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clusterproof.plugins.watch.textfile import Textfile
from tests.counterparts import installed
from tests.watch.sinks_of_day import OfDay, series, tick

pytestmark = installed.needs("prometheus")


def linted(text: str) -> str:
    """The linter's complaints; empty if there are none."""
    done = subprocess.run([installed.folder("prometheus") / "lint"], input=text, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


def test_the_linter_has_nothing_against_the_metrics_of_a_watch() -> None:
    watched = OfDay().hello().take(tick(100.0), tick(110.0))
    watched.day.silence(60)
    watched.sinks.report(watched.day.said)
    watched.sinks.add_part("recording", lambda: True)
    text = watched.take(tick(120.0)).text
    assert linted(text) == ""
    assert "source_late" not in text


def test_the_linter_does_find_what_is_wrong() -> None:
    wrong = OfDay().hello().text.replace("node_samples_total", "node_samples").replace("start_time_seconds", "startMs")
    assert "_total" in linted(wrong)


def test_node_exporter_serves_the_file_while_the_watch_runs_and_that_it_is_over_afterwards(tmp_path: Path) -> None:
    watched = OfDay().hello().take(tick(100.0), tick(110.0))
    path = tmp_path / "watch.prom"
    file = Textfile(path, 3600.0, watched.sinks.snapshot, watched.own.append)
    with exporter(tmp_path) as url:
        running = series(scraped(url))
        file.close()
        over = series(scraped(url))
    for read in (running, over):
        assert read["node_textfile_scrape_error"] == 0
        assert f'node_textfile_mtime_seconds{{file="{path}"}}' in read
    assert running["up"] == 1
    assert running['gpu_throttled_seconds_total{gpu="1",reason="power_cap"}'] == 5
    assert over["up"] == 0
    assert not any(name.startswith("gpu_") for name in over)


@contextmanager
def exporter(folder: Path) -> Iterator[str]:
    """node_exporter with only its textfile collector."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command: list[str | Path] = [installed.folder("prometheus") / "node_exporter", "--collector.disable-defaults"]
    more = ["--collector.textfile", f"--collector.textfile.directory={folder}", f"--web.listen-address={address}"]
    process = subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout
    try:
        listening = next((line for line in process.stdout if "Listening on" in line), "")
        assert address in listening
        yield f"http://{address}/metrics"
    finally:
        process.kill()
        process.wait()


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=600) as answer:
        return str(answer.read().decode())
