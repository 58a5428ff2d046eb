"""`--bundle FILE.tar.zst`: everything about a run that support needs, in one file, written atomically."""

from __future__ import annotations

import errno
import io
import json
import os
import platform
import re
import stat
import tarfile
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from importlib.metadata import distributions
from io import BufferedWriter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.opened import NOT_A_FILE, created
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evidence.recording import write_cluster, write_control_plane, write_node
from clusterproof.plugins.policy import policy_as_written
from clusterproof.plugins.redaction.policy import as_toml, file_without_names
from clusterproof.plugins.suite.ending import code_so_far
from clusterproof.plugins.suite.state import (
    CONTROL_PLANE,
    EVIDENCE,
    PAIRWISE,
    catalog_of,
    note_full,
    occasion_of,
    policy_of,
)
from clusterproof.reports import headline
from clusterproof.reports.history import FILE
from clusterproof.reports.results import lines_of
from clusterproof.reports.summary import summary

if TYPE_CHECKING:
    from clusterproof.plugins.redaction.redact import Redaction

SCHEMA = 1
ROOT = "clusterproof"  # the archive's only top-level folder
_PART = ".part"  # suffix of an incomplete bundle, which may be in the reports' folder
LEVEL = 10  # of zstd: shrinks a recording to a twentieth, at about 50 MB/s
MAX_NAME = 150  # characters of a path component in the archive
_REPORTS = ("xmlpath", "htmlpath")  # options of pytest and its plugins that name report files
_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_OWN = ("boto3", "clustershell", "fabric", "nvidia-ml-py", "paramiko", "pytest", "pytest-html", "pytest-xdist")
README = """\
What clusterproof found on a cluster, and all that it found it by.

summary.txt      the findings, for people
results.jsonl    one JSON record for each check and node
recording/       what every node and the control plane reported; the same verdicts again, anywhere:
                     clusterproof check replay:recording
policy.toml      the site's own rules, where there were some
reports/         report files of the run
bundle.json      versions, when it ran and over what
"""

Member = tuple[str, bytes]


class BundleReporter:
    """The plugin of a run that writes a bundle. Problems are warnings, and change no verdict."""

    def __init__(
        self,
        config: pytest.Config,
        cluster: Cluster,
        results: Sequence[Result],
        path: Path,
        redaction: Redaction | None = None,
    ) -> None:
        self.config = config
        self.cluster = cluster
        self.results = results
        self.path = path
        self.redaction = redaction
        self.began = time.time()
        self.said = ""
        self.is_written = False

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Write it after the hooks that write reports, and before the summary."""
        yield
        try:
            write_bundle(self.path, self._members(code_so_far(session)), self.began)
        except (OSError, ValueError) as problem:
            note_full(self.config, problem)
            message = " ".join(str(problem).split())
            self.said = f"warning: no bundle: {message if isinstance(problem, OSError) else type(problem).__name__}"
        else:
            self.is_written = True
            self.said = f"bundle: {self.path} ({self.path.stat().st_size / 1e6:.1f} MB)"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print where it is, or why it was not written."""
        if self.said:
            terminalreporter.write_line(self.said, yellow=not self.is_written)

    def _members(self, exit_code: int) -> Iterator[Member]:
        yield "README.txt", README.encode()
        yield "bundle.json", (json.dumps(self._about(exit_code), indent=1) + "\n").encode()
        lines = (line.text for line in summary(self._reported, catalog_of(self.config), 120, verbose=True))
        yield "summary.txt", _utf8("\n".join(lines) + "\n")
        yield "results.jsonl", _utf8("".join(f"{line}\n" for line in lines_of(self.results)))
        yield from self._recording()
        if policy_of(self.config).source:
            yield "policy.toml", _utf8(self._policy())
        for named in _REPORTS:
            path = self.config.getoption(named, None)
            if isinstance(path, (str, Path)) and path:
                yield from files_of(Path(path), self.began)
        reporting = self.config.pluginmanager.get_plugin("clusterproof-reporting")
        if reporting and reporting.folder:
            yield from files_of(reporting.folder, self.began)

    @property
    def _reported(self) -> Sequence[Result]:
        """The results, and what broke without one."""
        outcomes: Any = self.config.pluginmanager.get_plugin("clusterproof-outcomes")
        reported: Sequence[Result] = outcomes.reported
        return reported

    def _policy(self) -> str:
        text, record = policy_as_written(self.config.option.policy, self.config.invocation_params.dir)
        redaction = self.redaction
        if redaction:
            shown = redaction.text, redaction.type_word, redaction.version, redaction.node_word
            return file_without_names(record, *shown)
        return text or as_toml(record)

    def _about(self, exit_code: int) -> dict[str, Any]:
        option = self.config.option
        return {
            "schema": SCHEMA,
            "cluster": self.cluster.name,
            "connection": self.cluster.connection,
            "nodes": len(self.cluster.targets),
            "aws": {key: self.cluster.settings[key] for key in ("arn", "region") if key in self.cluster.settings},
            "occasion": occasion_of(option.markexpr),
            "marks": self.redaction.text(option.markexpr) if self.redaction else option.markexpr,
            "kernel_log_since": option.since,
            "began": self.began,
            "ended": time.time(),
            "exit_code": exit_code,
            "verdict": headline(self._reported) if self._reported else "nothing was found out",
            "is_redacted": bool(option.redact),
            "versions": self._versions(),
        }

    def _versions(self) -> dict[str, str]:
        shown = self.redaction.version if self.redaction else str
        return {name: shown(version) for name, version in versions().items()}

    def _recording(self) -> Iterator[Member]:
        """The evidence, in the form of `--record`."""
        with tempfile.TemporaryDirectory(prefix="clusterproof-") as made:
            folder = Path(made)
            write_cluster(folder, self.cluster)
            for evidence in self.config.stash.get(EVIDENCE, {}).values():
                write_node(folder, evidence)
            data = self.config.stash.get(CONTROL_PLANE, None)
            if data:
                write_control_plane(folder, data)
            between = self.config.stash.get(PAIRWISE, None)
            if between:
                from clusterproof.plugins.suite.perf.pairs_measure import write_journals  # few runs measure pairs

                write_journals(between, folder)
            for path in sorted(folder.rglob("*.json*")):
                yield f"recording/{path.relative_to(folder)}", path.read_bytes()


def reporter(config: pytest.Config, cluster: Cluster, results: Sequence[Result]) -> BundleReporter | None:
    """The reporter of `--bundle FILE.tar.zst`; None if nothing is run."""
    if config.option.collectonly:
        return None
    run = config.pluginmanager.get_plugin("clusterproof-session")
    redaction = getattr(run, "redaction", None)
    return BundleReporter(config, cluster, results, Path(config.option.bundle), redaction)


def write_bundle(path: Path, members: Iterable[Member], moment: float) -> None:
    """Write the archive atomically. Raises OSError, and ValueError for an unsafe member name."""
    import zstandard  # a C library that few runs need

    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):  # it would be replaced
        raise OSError(errno.EINVAL, NOT_A_FILE, str(path))
    part = path.with_name(f".{path.name}.{os.getpid()}{_PART}")
    try:
        with BufferedWriter(created(part)) as file:
            os.fchmod(file.fileno(), 0o600)  # its owner decides who sees a cluster's names and logs
            with (
                zstandard.ZstdCompressor(level=LEVEL).stream_writer(file, closefd=False) as packed,
                tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                for name, content in members:
                    _add(archive, name, content, moment)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, name: str, content: bytes, moment: float) -> None:
    if any(part in ("", ".", "..") for part in name.split("/")) or not name.isprintable() or "\\" in name:
        raise ValueError(f"{name!r:.100} is not a name for a file in a bundle")
    about = tarfile.TarInfo(f"{ROOT}/{name}")
    about.size, about.mtime, about.mode = len(content), int(moment), 0o644
    archive.addfile(about, io.BytesIO(content))


def files_of(path: Path, began: float) -> Iterator[Member]:
    """The report files at or below a path that this run wrote, except the history, which covers other runs too.

    Links are not followed, and names are not trusted.
    """
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if file.is_symlink() or not file.is_file() or file.name.startswith(FILE) or file.name.endswith(_PART):
            continue
        if file.stat().st_mtime < began - 1:
            continue
        parts = file.relative_to(path).parts if path.is_dir() else (file.name,)
        yield "/".join(["reports", *map(safe_name, parts)]), file.read_bytes()


def safe_name(name: str) -> str:
    """Convert a name to one that means the same file on every system."""
    if len(name) <= MAX_NAME and _SAFE.fullmatch(name):
        return name
    quoted = quote(os.fsencode(name), safe="")
    return f"%2E{quoted[1:]}"[:MAX_NAME] if quoted.startswith(".") else quoted[:MAX_NAME] or "%"


def versions() -> dict[str, str]:
    """Versions of the suite, its dependencies and the machine that ran it, without that machine's name."""
    installed = {
        (distribution.metadata["Name"] or "").lower(): distribution.version for distribution in distributions()
    }
    system = {"python": platform.python_version(), "system": f"{platform.system()} {platform.release()}"}
    return {**system, **{name: installed[name] for name in ("clusterproof", *_OWN) if name in installed}}


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
