"""An image made of one program, in the form that `docker save` writes and `ctr images import` reads."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from pathlib import Path


def archive(program: Path, names: Sequence[str]) -> bytes:
    """An image with nothing but a program, under these names; its user is nobody, as that of many."""
    layer = _tar({program.name: program.read_bytes()})
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{program.name}"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    named = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": named, "RepoTags": list(names), "Layers": ["layer.tar"]}]).encode()
    return _tar({"manifest.json": manifest, named: config, "layer.tar": layer})


def _tar(files: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755
            tar.addfile(member, io.BytesIO(data))
    return whole.getvalue()
