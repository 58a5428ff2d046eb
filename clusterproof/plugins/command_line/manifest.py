"""`clusterproof manifest`: reads a known good machine, or a recording of it, and writes its golden manifest."""

from __future__ import annotations

import argparse
import sys
from datetime import date
from pathlib import Path

import pytest

from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.one_line import BAD_COMMAND_LINE, OneLineParser
from clusterproof.plugins.core.opened import is_file
from clusterproof.plugins.evidence.recording import write_whole
from clusterproof.plugins.manifest.compose import manifest_of, text_of
from clusterproof.plugins.options.validate import why_not_made
from clusterproof.plugins.suite.state import CLUSTER, nodes_of

CHECKS = "checks/software/test_manifest.py"  # a manifest consists of what they read
SILENT = ("-p", "no:terminal", "-m", "ami")


class WriteManifest:
    """Plugin for a run that writes a manifest instead of evaluating checks."""

    def __init__(self, source: str, out: str) -> None:
        self.source = source
        self.out = out
        self.text = ""  # what remains to be printed

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        """Run last, so that this plugin's test loop is used. Raises pytest.UsageError."""
        if self.out and is_file(self.out) and Path(self.out).stat().st_size:  # it may have been edited
            raise pytest.UsageError(
                f"{self.out} is there already: nothing was written; expected the name of a new file"
            )
        why = why_not_made(Path(self.out), as_folder=False) if self.out else ""
        if why:
            raise pytest.UsageError(f"{self.out}: {why}; expected a file that may be written")
        config.pluginmanager.register(_Loop(self), "clusterproof-manifest")


class _Loop:
    def __init__(self, writing: WriteManifest) -> None:
        self.writing = writing

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Write what the nodes reported, without running checks."""
        every = nodes_of(session.config).values()
        answered = [node for node in every if not node.evidence.unreached]
        for node in every:
            if node.evidence.unreached:
                why = printable(" ".join(f"{node.evidence.unreached.value} {node.evidence.detail}".split()))
                print(f"left out {printable(node.name)}: {why}", file=sys.stderr)
        if not answered:
            raise pytest.UsageError("no node answered; expected a machine known to be good")
        source = session.config.stash[CLUSTER].name if session.config.option.redact else self.writing.source
        text = text_of(manifest_of(answered), date.today().isoformat(), source)
        out = self.writing.out
        if not out:
            self.writing.text = text
            return True
        try:
            _write(Path(out), text)
        except OSError as problem:
            raise pytest.UsageError(f"{out}: {problem.strerror}; expected a file that may be written") from None
        print(f"wrote {out}", file=sys.stderr)
        return True


def _write(path: Path, text: str) -> None:
    """Write a file atomically; anything but a regular file, such as a pipe, is written to directly. Raises OSError."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
    else:
        write_whole(path.resolve(), text)


def parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof manifest`."""
    parser = OneLineParser(
        prog="clusterproof manifest",
        description="Writes the golden manifest of a machine known to be good, for --policy golden.toml -m ami.",
        epilog="Any other option of clusterproof, such as --nodes, --region or --sudo, may follow.",
        allow_abbrev=False,
    )
    parser.add_argument("--from", "--cluster", dest="source", required=True, metavar="X", help="what --cluster takes")
    parser.add_argument("--out", default="", metavar="FILE", help="a new file to write it to (default: print it)")
    return parser


def command_line(arguments: list[str], package: Path) -> tuple[list[str], WriteManifest]:
    """Pytest's arguments for `clusterproof manifest ARGUMENTS`, and the plugin that writes it. Raises SystemExit."""
    try:
        option, further = parser().parse_known_args(arguments)
    except SystemExit as end:
        raise SystemExit(BAD_COMMAND_LINE if end.code else 0) from None
    return [*SILENT, "--cluster", option.source, str(package / CHECKS), *further], WriteManifest(
        option.source, option.out
    )
