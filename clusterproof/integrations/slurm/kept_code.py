"""A cache in /run of the code of imported modules, in one file: the next run finds everything at once.

Finding and reading some 200 files takes longer than executing them. A module whose file has changed is imported
normally, as is everything under another Python or from another installation: an upgrade leaves the files of the version
before. The file is an index followed by each module's code in `marshal` format; the first bytes are the length of the
index. It is mapped, because copying would be slow.
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
    Kept = tuple[str, bool, Version, int, int]  # file, whether a package, its version, where its code is
else:
    ModuleSpec = type(__spec__)  # avoids importing importlib.machinery

FOLDER = "/run/clusterproof"
NAME = "code"
LENGTH_BYTES = 8
BUILD = (sys.implementation.cache_tag, f"{sys.hexversion:x}", sys.base_prefix, sys.prefix, __file__)
BEFORE = frozenset(sys.modules)  # imported before the cache can be used


class KeptCode:
    """Finds and loads cached modules."""

    def __init__(self, index: Mapping[str, Kept], code: memoryview) -> None:
        self._index = index
        self._code = code

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Called by the import system: a specification if the cached module matches its file, else None."""
        kept = self._index.get(name)
        if kept is None or version_of(kept[0]) != kept[2]:
            return None
        spec = ModuleSpec(name, self, origin=kept[0], is_package=kept[1])  # type: ignore[arg-type] # by its methods
        if kept[1]:
            spec.submodule_search_locations = [os.path.dirname(kept[0])]
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """Use Python's default module creation."""

    def exec_module(self, module: ModuleType) -> None:
        """Execute the module's code."""
        module.__file__, _, _, start, end = self._index[module.__name__]
        exec(marshal.loads(self._code[start:end]), vars(module))  # noqa: S102, S302 - our own, from a folder of root's


def version_of(file: str) -> Version:
    """Changes whenever a file is written or replaced; zeros if it is missing."""
    try:
        status = os.stat(file)
    except OSError:
        return (0,)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def use(folder: str = FOLDER) -> None:
    """Use the cache from now on, if only root can have written it, and it is for this Python and installation."""
    try:
        if distrust(folder):
            return
        descriptor = opened(f"{folder}/{NAME}", os.O_RDONLY)
        try:
            content = memoryview(mmap(descriptor, 0, access=ACCESS_READ))
        finally:
            os.close(descriptor)
        index_end = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
        of, length, index = marshal.loads(content[LENGTH_BYTES:index_end])  # noqa: S302 - our own
    except (OSError, ValueError, TypeError, EOFError):
        return
    if of == BUILD and length == len(content) - index_end:
        sys.meta_path.insert(0, KeptCode(index, content[index_end:]))


def is_complete() -> bool:
    """Whether everything imported in this run was cached."""
    return not any(_is_found_by_python(module) for name, module in sys.modules.items() if name not in BEFORE)


def imported() -> dict[str, str]:
    """The source files of all imported modules, cached or not, by module name."""
    return {
        name: str(module.__file__)
        for name, module in sys.modules.items()
        if name not in BEFORE and (_is_found_by_python(module) or isinstance(_loader_of(module), KeptCode))
    }


def content(files: Mapping[str, str], has_time: Callable[[], bool] = lambda: True) -> bytes:
    """The cache file for these modules, given by name with their source files; empty if time is short.

    Raises OSError and SyntaxError if a file is missing or incomplete.
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
    head = marshal.dumps((BUILD, len(code), index))
    return len(head).to_bytes(LENGTH_BYTES, "little") + head + bytes(code)


def _is_found_by_python(module: ModuleType) -> bool:
    """Whether Python itself found it, as a source file."""
    return hasattr(_loader_of(module), "path_stats")


def _loader_of(module: ModuleType) -> object:
    return getattr(getattr(module, "__spec__", None), "loader", None)
