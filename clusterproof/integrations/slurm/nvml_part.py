"""The part of nvidia-ml-py that the probe reaches, kept on the node as compiled: all of it takes longer than the GPUs.

It is what nodes without nvidia-ml-py are sent. What was kept of another nvidia-ml-py, another probe or for another
Python is not used.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
import zlib
from binascii import Error, a2b_base64, b2a_base64
from importlib.machinery import ModuleSpec, PathFinder

from clusterproof.integrations.slurm.state import State
from clusterproof.plugins.agent import program

RECORD = "pynvml"
MODULE = "pynvml"
MADE_BY = ("payload.py", "lean.py")  # of the agent's files, beside the collector's own


class Part:
    """Finds and loads that module."""

    def __init__(self, code: bytes) -> None:
        self._code = code

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """What the import system asks: a specification for this module, else None."""
        return ModuleSpec(name, self) if name == MODULE else None  # type: ignore[arg-type] # by its methods

    def create_module(self, _spec: ModuleSpec) -> None:
        """Leave the making of the module to Python."""

    def exec_module(self, module: object) -> None:
        """Run its code in it."""
        exec(marshal.loads(self._code), vars(module))  # noqa: S102, S302 - our own, from a folder of root's


def part_of(state: State) -> bytes:
    """The code that was kept; empty where there is none that fits."""
    record = state.read(RECORD)
    if not record or record.get("of") != _made_of():
        return b""
    try:
        return a2b_base64(record["code"])
    except (Error, KeyError, TypeError, ValueError):
        return b""


def keep_part(state: State) -> None:
    """Make it, in about a tenth of a second, and keep it where that can be done."""
    from clusterproof.plugins.agent.payload import modules_for, pynvml_for

    made_of = _made_of()
    if not made_of:
        return
    source = pynvml_for(modules_for({program.module_of("nvml")}).values())
    code = marshal.dumps(compile(source, f"{MODULE}.py", "exec", dont_inherit=True))
    with contextlib.suppress(OSError):
        state.write(RECORD, {"of": made_of, "code": b2a_base64(code, newline=False).decode()})


def _made_of() -> str:
    """What changes with the installed nvidia-ml-py, the files of the probe and this Python; empty without the first."""
    found = PathFinder.find_spec(MODULE)
    if found is None or not found.origin:
        return ""
    agent = os.path.dirname(program.__file__)
    made_by = [file for name, file in sorted(program.files().items()) if name.startswith("nvml")]
    read = [found.origin, *made_by, *(f"{agent}/{name}" for name in MADE_BY)]
    data = [(file, stat.st_size, stat.st_mtime_ns) for file, stat in ((file, os.stat(file)) for file in read)]
    return f"{zlib.crc32(repr(data).encode()):08x} {sys.hexversion:x}"
