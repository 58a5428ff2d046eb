"""A cache of compiled modules in one file in /run, which saves the next run most of its import time.

Looking for each of some 200 files, and reading it, takes longer than what is in it. A module whose file is no longer as
it was is imported as ever, and so are all under another Python or of another installation: an upgrade leaves the files
of the version before. The file is an index and, after it, the code of each module as `marshal` has it; the first bytes
say how long the index is. It is mapped, as copies would be costly.
"""

from __future__ import annotations

import marshal
import os
import sys
from mmap import ACCESS_READ, mmap

from clusterproof.integrations.slurm.roots import distrust, opened

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Version = tuple[int, ...]
    Kept = tuple[str, bool, Version, int, int]  # the file, whether of a package, its version, the place of its code
else:
    ModuleSpec = type(__spec__)  # importlib.machinery's, which costs an import

FOLDER = "/run/clusterproof"
NAME = "code"
LENGTH_BYTES = 8
OF = (sys.implementation.cache_tag, f"{sys.hexversion:x}", sys.base_prefix, sys.prefix, __file__)
BEFORE = frozenset(sys.modules)  # what is imported before anything can be found in the file


class KeptCode:
    """An import hook: finds and loads the modules of that file."""

    def __init__(self, index: Mapping[str, Kept], code: memoryview) -> None:
        self._index = index
        self._code = code

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """What the import system asks: a specification for a module that is kept as its file has it, else None."""
        kept = self._index.get(name)
        if kept is None or version_of(kept[0]) != kept[2]:
            return None
        spec = ModuleSpec(name, self, origin=kept[0], is_package=kept[1])  # type: ignore[arg-type] # by its methods
        if kept[1]:
            spec.submodule_search_locations = [os.path.dirname(kept[0])]
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """Leave the making of the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run its code in it."""
        module.__file__, _, _, begins, ends = self._index[module.__name__]
        exec(marshal.loads(self._code[begins:ends]), vars(module))  # noqa: S102, S302 - our own, from a folder of root's


def version_of(file: str) -> Version:
    """What changes whenever a file is written or replaced; zeros where there is none."""
    try:
        status = os.stat(file)
    except OSError:
        return (0,)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def use(folder: str = FOLDER) -> None:
    """From now on import what is kept, if root alone has kept it, and this Python of this installation."""
    try:
        if distrust(folder):
            return
        descriptor = opened(f"{folder}/{NAME}", os.O_RDONLY)
        try:
            whole = memoryview(mmap(descriptor, 0, access=ACCESS_READ))
        finally:
            os.close(descriptor)
        index_end = LENGTH_BYTES + int.from_bytes(whole[:LENGTH_BYTES], "little")
        of, length, index = marshal.loads(whole[LENGTH_BYTES:index_end])  # noqa: S302 - our own
    except (OSError, ValueError, TypeError, EOFError):
        return
    if of == OF and length == len(whole) - index_end:
        sys.meta_path.insert(0, KeptCode(index, whole[index_end:]))


def is_complete() -> bool:
    """Whether whatever this run has imported so far was kept."""
    return not any(_is_found_by_python(module) for name, module in sys.modules.items() if name not in BEFORE)


def imported() -> dict[str, str]:
    """The files of what is imported now, as source or from what was kept, by the names of the modules."""
    return {
        name: str(module.__file__)
        for name, module in sys.modules.items()
        if name not in BEFORE and (_is_found_by_python(module) or isinstance(_loader_of(module), KeptCode))
    }


def content(files: Mapping[str, str], has_time: Callable[[], bool] = lambda: True) -> bytes:
    """The file in which these modules are kept, each by its name with the file of its source; empty for want of time.

    Raises OSError and SyntaxError, where a file is gone or half written.
    """
    from importlib.machinery import SourceFileLoader

    index: dict[str, Kept] = {}
    code = bytearray()
    for name, file in files.items():
        if not has_time():
            return b""
        version = version_of(file)  # before it is read
        begins = len(code)
        code += marshal.dumps(SourceFileLoader(name, file).get_code(name))
        index[name] = (file, file.endswith("/__init__.py"), version, begins, len(code))
    head = marshal.dumps((OF, len(code), index))
    return len(head).to_bytes(LENGTH_BYTES, "little") + head + bytes(code)


def _is_found_by_python(module: ModuleType) -> bool:
    """Whether Python has found it itself, as a file of source."""
    return hasattr(_loader_of(module), "path_stats")


def _loader_of(module: ModuleType) -> object:
    return getattr(getattr(module, "__spec__", None), "loader", None)
