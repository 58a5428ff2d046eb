"""A support bundle's content, as its recipient sees it."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import zstandard

from clusterproof.plugins.suite.reporters.bundle import ROOT


def contents(path: Path) -> dict[str, bytes]:
    """Every file of a bundle by its name under the single top folder."""
    with _opened(path) as archive:
        members = {}
        for member in archive:
            assert member.isfile()
            assert member.name.startswith(f"{ROOT}/")
            assert ".." not in member.name.split("/")
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            file = archive.extractfile(member)
            assert file is not None
            members[member.name.removeprefix(f"{ROOT}/")] = file.read()
        return members


def unpack(path: Path, folder: Path) -> None:
    """Unpack a bundle as strictly as this Python can: only since 3.11.4 does it refuse names that lead elsewhere."""
    strictly = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with _opened(path) as archive:
        archive.extractall(folder, **strictly)  # type: ignore[arg-type]


def _opened(path: Path) -> tarfile.TarFile:
    raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes())).read()
    return tarfile.open(fileobj=io.BytesIO(raw))
