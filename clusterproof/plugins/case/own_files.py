"""Files of the suite's reports and recordings that say nothing of a job, or what others of them say."""

from __future__ import annotations

import re
from pathlib import Path

REPORT = ("report.html", "junit.xml", "metrics.prom", "summary.md", "summary.txt")  # next to results.jsonl
_OUTBOX = re.compile(r"outbox-\d{1,6}\.jsonl")


def is_own(path: Path) -> bool:
    """Whether it is one, by the files next to it: a job's own output may have such a name."""
    folder = path.parent
    if path.name in REPORT:
        return (folder / REPORT[0]).is_file() and (folder / "results.jsonl").is_file()
    if path.name == "cluster.json":
        return (folder / "nodes").is_dir()
    if folder.name == "nodes":
        return path.suffix == ".json" and (folder.parent / "cluster.json").is_file()
    return bool(_OUTBOX.fullmatch(path.name)) and (folder / "cluster.json").is_file()
