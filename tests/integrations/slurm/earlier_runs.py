"""What the scripts' first run of a boot caches: on a node that has it, a run takes a third of the processor time."""

from __future__ import annotations

import functools
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from clusterproof.integrations.slurm import kept_code, standby
from clusterproof.integrations.slurm.call import PROGRAM
from clusterproof.integrations.slurm.settings import FILE, Settings
from clusterproof.integrations.slurm.state import RUNTIME_FOLDER
from tests.testbed.image import NodeImage
from tests.testbed.node import Node, entered, healthy_p5, with_file, with_whole_machine

CACHED = (f"{RUNTIME_FOLDER}/{kept_code.NAME}", f"{Settings().state}/{standby.RECORD}.json")
IMPORTED = (str(Path(kept_code.__file__).parents[2]), str(Path(sysconfig.get_path("stdlib")).resolve()))


def with_imports(image: NodeImage) -> NodeImage:
    """The image with what scripts import in this machine's own file system, by whose number the cache knows it."""
    return replace(image, bound={**image.bound, **dict(zip(IMPORTED, IMPORTED, strict=True))})


def leave_cache(node: Node) -> None:
    """Put the cache on a node with these imports, as an earlier run of its boot."""
    folder = node.root / RUNTIME_FOLDER[1:]
    folder.mkdir(0o700, exist_ok=True)
    for name, content in _cache().items():
        written = folder / f".{name}"  # a script may be reading the other one
        written.touch(0o600)
        written.write_bytes(content)
        written.replace(folder / name)


@functools.cache
def _cache() -> Mapping[str, bytes]:
    image = with_file(healthy_p5(), FILE, 'mode = "drain"\n')
    with entered(with_imports(with_whole_machine(image))) as node:
        node.run([sys.executable, "-I", "-c", PROGRAM, "health-check"])
        files = [file for name in CACHED if (file := node.root / name[1:]).exists()]  # none, if time ran out
        return {file.name: file.read_bytes() for file in files}
