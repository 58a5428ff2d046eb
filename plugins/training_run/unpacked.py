"""The bytes of a file, piece by piece, unpacked where it is packed: of one that was cut, all up to the cut."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import zstandard

from clusterproof.plugins.training_run.records import RunError

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
MAX_WINDOW = 8 << 20  # bytes that a packed file may make its reader keep: zstd's own bound of a stream
_OF_GZIP = 31  # zlib's word for its header
PIECE = 1 << 16  # bytes
HEAD = 1 << 16  # bytes by which a file's form is known
LONG_HEAD = 1 << 20  # the same of a trace with long metadata
MAX_BYTES = 64 << 30  # of one file, unpacked


class Unpacked:
    """A file; `is_cut` says, once it is read, whether it is packed and has no end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_cut = False

    def __iter__(self) -> Iterator[bytes]:
        """Its pieces, none of them empty. Raises RunError."""
        size = 0
        try:
            with self.path.open("rb") as file:
                magic = file.read(len(ZSTD))
                file.seek(0)
                for piece in self._pieces(file, magic):
                    size += len(piece)
                    if size > MAX_BYTES:
                        raise RunError(f"{self.path}: more than {MAX_BYTES:,} bytes; expected fewer")
                    yield piece
        except (OSError, zlib.error, zstandard.ZstdError) as wrong:
            why = getattr(wrong, "strerror", None) or wrong
            raise RunError(f"{self.path}: {why}; expected a file that can be read") from None

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


def head_of(path: Path, size: int = HEAD) -> bytes:
    """How a file begins. Raises RunError."""
    head = b""
    for piece in Unpacked(path):
        head += piece
        if len(head) >= size:
            break
    return head
