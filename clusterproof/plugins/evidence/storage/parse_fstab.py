"""/etc/fstab: what should be mounted, and what of it is."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.parsing import CaptureError, Form, objects
from clusterproof.plugins.evidence.storage.collect_mounts import MAX_FSTAB, PSEUDO
from clusterproof.plugins.evidence.storage.parse_mounts import FSTAB_TITLE, LONGEST_LINE, mount_of, unescaped

_FSTAB = re.compile(
    r"(?:(?:UUID|LABEL|PARTUUID|PARTLABEL)=\S{1,200}|/dev/\S{1,200}|[^#\s]\S{0,200}@tcp:/\S{1,200}|[^#\s]\S{0,200}:/\S{0,400}"
    r"|tmpfs|none|fs-\S{1,60})[ \t]{1,80}(/\S{0,400})[ \t]{1,80}[a-z][\w.]{1,20}(?:[ \t]{1,80}\S{1,800})?"
    r"(?:[ \t]{1,40}\d[ \t]{1,40}\d)?[ \t]*\Z"
)


def is_fstab(text: str) -> bool:
    """Whether there are lines of /etc/fstab: such as no list of mounts has, or any below its title."""
    return bool(_of_fstab(text))


def read_fstab(text: str) -> Mapping[str, object]:
    """The entries of the collector `mounts`; whether they are mounted fstab does not say. Raises CaptureError."""
    entries = [
        {
            "path": unescaped(row[1]).rstrip("/") or "/",
            "type": row[2],
            "source": unescaped(row[0]),
            "options": row[3] if len(row) > 3 else "defaults",
        }
        for row in map(str.split, _of_fstab(text))
        if not PSEUDO.fullmatch(row[2])
    ]
    if not entries:
        raise CaptureError("fstab mounts nothing")
    return {"mounts": {"fstab": entries[:MAX_FSTAB]}}


def _of_fstab(text: str) -> list[str]:
    title = FSTAB_TITLE.search(text)
    lines = (line[:LONGEST_LINE] for line in text[:400_000].split("\n"))
    return [line for line in lines if _FSTAB.match(line) and (title or not mount_of(line))]


def completed(data: object) -> object:
    """The collector `mounts` once every file is read: what of fstab is mounted, where a list of all mounts says it."""
    if not isinstance(data, dict):
        return data
    value = {key: entry for key, entry in data.items() if key != "paths"}
    paths, entries = data.get("paths"), data.get("fstab")
    if isinstance(paths, list) and isinstance(entries, list):
        value["fstab"] = [{**entry, "mounted": entry.get("path") in paths} for entry in objects(entries)]
    return value


FORMS = (Form("fstab", is_fstab, read_fstab),)
