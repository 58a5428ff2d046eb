"""The bytes of a file, piece by piece, unpacked where it is packed: of one that was cut, all up to the cut."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import zstandard

from clusterproof.plugins.core.opened import Budget, opened
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.training_run.records import RunError

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
MAX_WINDOW = 8 << 20  # bytes that a packed file may make its reader keep: zstd's own bound of a stream
_OF_GZIP = 31  # zlib's word for its header
PIECE = 1 << 16  # bytes
HEAD = 1 << 16  # bytes by which a file's form is known
LONG_HEAD = 1 << 20  # the same of a trace with long metadata
MAX_BYTES = 64 << 30  # of all files of a run, unpacked
MAX_RATIO = 100  # unpacked bytes by packed ones; traces have 13 to 30
ANY_RATIO_BYTES = 16 << 20  # up to which it does not matter


@record
class RunFile:
    """A file of a run: where it is, in which folder it must be to be opened, and what all of them may be long."""

    path: Path
    below: Path | None = None
    budget: Budget = field(default_factory=lambda: Budget(MAX_BYTES))

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """Its own name, without the folder's."""
        return self.path.name


class Unpacked:
    """A file; `is_cut` says, once it is read, whether it is packed and has no end."""

    def __init__(self, file: RunFile) -> None:
        self.file = file
        self.is_cut = False

    def __iter__(self) -> Iterator[bytes]:
        """Its pieces, none of them empty. Raises RunError."""
        size = 0
        try:
            with opened(self.file.path, self.file.below) as file:
                magic = file.read(len(ZSTD))
                file.seek(0)
                most = max(MAX_RATIO * os.fstat(file.fileno()).st_size, ANY_RATIO_BYTES)
                for piece in self._pieces(file, magic):
                    size += len(piece)
                    if size > most:
                        raise RunError(f"{self.file}: unpacks to more than {MAX_RATIO} times its size; expected less")
                    self.file.budget.take(len(piece))
                    yield piece
        except (OSError, zlib.error, zstandard.ZstdError) as wrong:
            why = getattr(wrong, "strerror", None) or wrong
            raise RunError(f"{self.file}: {why}; expected a file that can be read") from None

    def _pieces(self, file: IO[bytes], magic: bytes) -> Iterator[bytes]:
        if magic.startswith(GZIP):
            return self._inflated(file)
        if magic != ZSTD:
            return iter(lambda: file.read(PIECE), b"")
        frames = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(file, read_across_frames=True)
        return iter(lambda: frames.read(PIECE), b"")  # what is missing of its last frame is not said

    def _inflated(self, file: IO[bytes]) -> Iterator[bytes]:
        inflate = zlib.decompressobj(_OF_GZIP)
        while packed := file.read(PIECE):
            while packed:
                piece = inflate.decompress(packed, PIECE)
                if piece:
                    yield piece
                packed = inflate.unconsumed_tail
                if inflate.eof:
                    packed = inflate.unused_data
                    if packed and not packed.startswith(GZIP[: len(packed)]):
                        return  # something else behind its end
                    inflate = zlib.decompressobj(_OF_GZIP)
                    self.is_cut = False
                else:
                    self.is_cut = True


def head_of(file: RunFile, size: int = HEAD) -> bytes:
    """How a file begins. Raises RunError."""
    head = b""
    for piece in Unpacked(file):
        head += piece
        if len(head) >= size:
            break
    return head
