"""Bytes that are in a file whole or not at all: a full disk leaves no half of a line."""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from io import FileIO


def append(file: FileIO, size: int, data: bytes) -> None:
    """Write behind the first `size` bytes of a file that is open there. Raises OSError: it has those bytes, then."""
    left = memoryview(data)
    try:
        while left:
            left = left[file.write(left) or 0 :]
    except OSError:
        file.truncate(size)
        raise
