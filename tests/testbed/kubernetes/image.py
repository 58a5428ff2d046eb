"""An image made of a few files, in the form that `docker save` writes and `ctr images import` reads."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path


def archive(files: Mapping[str, Path], names: Sequence[str], **settings: object) -> bytes:
    """An image with nothing but these files by path, under these names; its user is nobody, as that of many.

    `settings` are further ones of its configuration, such as `Env`.
    """
    layer = _tar({path.lstrip("/"): file.read_bytes() for path, file in files.items()})
    config = json.dumps(
        {
            "architecture": {"aarch64": "arm64"}.get(platform.machine(), "amd64"),
            "os": "linux",
            "config": {"Entrypoint": [next(iter(files))], "User": "65535:65535", **settings},
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
