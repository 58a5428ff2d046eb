"""Reads third-party files: bytes, decompression, lines and values; all bounded, and decoded strictly."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import IO, Any

import zstandard

from clusterproof.plugins.core.opened import Budget, opened
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.training_run import RunError

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
MAX_WINDOW = 8 << 20  # bytes of a zstd window: zstd's own limit for streams
_OF_GZIP = 31  # zlib's word for its header
PIECE = 1 << 16  # bytes
HEAD = 1 << 16  # bytes used to recognize a file's format
LONG_HEAD = 1 << 20  # the same of a trace with long metadata
MAX_BYTES = 64 << 30  # of all files of a run, unpacked
MAX_RATIO = 100  # unpacked bytes by packed ones; traces have 13 to 30
ANY_RATIO_BYTES = 16 << 20  # below this, the ratio does not matter


@record
class RunFile:
    """A file of a run: its path, the folder that it must be in, and the budget for all of them."""

    path: Path
    below: Path | None = None
    budget: Budget = field(default_factory=lambda: Budget(MAX_BYTES))
    folder: str = ""  # distinguishes it from files in other folders, if no name contains a node

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """Its own name, without the folder."""
        return self.path.name


_DIGITS = re.compile(r"\d+")
_OF_JOB = re.compile(r"(?:nvidia[-_]?)?(?:smi|dmon|dcgmi?)(?:[-_](?:job[-_]?)?\d+)+")


def stem_of(path: Path) -> str:
    """`gpu001` of `gpu001.dmon.txt`."""
    return path.name.partition(".")[0] or path.name


def folders_of(paths: Sequence[Path]) -> dict[Path, str]:
    """For files of one name in several folders, the folders that distinguish them: `n1/smi.csv`, `n2/smi.csv`.

    A number in it is the node's, `monday/gpu001.csv`, unless it stands alone behind a tool's name and no other file's
    name differs in the number alone: that of the job, `n1/smi_4242.csv`, stays beside the folder.
    """
    by_stem: dict[str, list[Path]] = {}
    for path in paths:
        by_stem.setdefault(stem_of(path), []).append(path.absolute())
    alike = Counter(_DIGITS.sub("#", stem) for stem in by_stem)
    folders: dict[Path, str] = {}
    for stem, files in by_stem.items():
        without_number = _DIGITS.sub("#", stem)
        is_of_node = without_number != stem and not (_OF_JOB.fullmatch(stem) and alike[without_number] == 1)
        if len({path.parent for path in files}) > 1 and not is_of_node:
            depth = len(Path(os.path.commonpath([path.parent for path in files])).parts)
            name = "" if without_number == stem else f"/{stem}"
            folders |= {path: f"{path.parts[depth]}{name}" for path in files if len(path.parts) > depth + 1}
    return {path: folders.get(path.absolute(), "") for path in paths}


_PACKED = re.compile(r"\.(?:gz|zst)\Z")
# train.log.1, train.log-20250616, a kubelet's with time; job.task-5 and dmesg.gpu-12 are named after a task and a node
_ROTATED = re.compile(r"(.+\.[a-z]+)(?:\.|-(?=[0-9]{8}))([0-9]{1,8}(?:-[0-9]{6})?)")
CURRENT = True, 0  # the place of a part that is still written
_MANY = 10_000  # larger numbers of such files are dates


def in_series(name: str) -> tuple[str, tuple[bool, int]]:
    """The name of a log before it was rotated and packed, and its place among the parts in the order of writing.

    That is train.log.2.gz, train.log.1, train.log.
    """
    name = _PACKED.sub("", name)
    rotated = _ROTATED.fullmatch(name)
    if not rotated:
        return name, CURRENT
    number = int(rotated[2].replace("-", ""))
    return rotated[1], (False, number if number >= _MANY else -number)


class Unpacked:
    """A decompressed file; `is_cut` says, once read, whether the compressed data is truncated."""

    def __init__(self, file: RunFile) -> None:
        self.file = file
        self.is_cut = False

    def __iter__(self) -> Iterator[bytes]:
        """Its pieces, none of them empty. Raises RunError."""
        try:
            opened_file = opened(self.file.path, self.file.below)
        except OSError as wrong:
            raise self._unreadable(wrong) from None
        with opened_file as file:
            yield from self.pieces(file)

    def pieces(self, file: IO[bytes]) -> Iterator[bytes]:
        """The same of a file that is open. Raises RunError."""
        size = 0
        try:
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
            raise self._unreadable(wrong) from None

    def _unreadable(self, wrong: Exception) -> RunError:
        why = getattr(wrong, "strerror", None) or wrong
        return RunError(f"{self.file}: {why}; expected a file that can be read")

    def _pieces(self, file: IO[bytes], magic: bytes) -> Iterator[bytes]:
        if magic.startswith(GZIP):
            return self._inflated(file)
        if magic != ZSTD:
            return iter(lambda: file.read(PIECE), b"")
        frames = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(file, read_across_frames=True)
        return iter(lambda: frames.read(PIECE), b"")  # a truncated last frame is not detected

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
                        return  # something else after its end
                    inflate = zlib.decompressobj(_OF_GZIP)
                    self.is_cut = False
                else:
                    self.is_cut = True


def head_of(file: RunFile, size: int = HEAD) -> bytes:
    """The beginning of a file. Raises RunError."""
    head = b""
    for piece in Unpacked(file):
        head += piece
        if len(head) >= size:
            break
    return head


MAX_LINE = 1 << 20  # bytes
_GAP = "\0" * 8  # written by file systems in place of data lost in a crash


class Lines:
    """The numbered lines of a file. A truncated file loses at most its last line."""

    def __init__(self, path: RunFile, errors: str = "strict", *, has_bars: bool = False) -> None:
        self.path = path
        self.errors = errors  # as in codecs: irrelevant log lines may contain anything
        self.has_bars = has_bars  # progress bars redrawn with carriage returns: a long line is read in parts
        self.number = 0
        self.is_cut = False  # in the last line read, as far as can be seen
        self.has_gap = False  # whether data was lost before a line

    @property
    def where(self) -> str:
        """`trace.csv:12`."""
        return f"{self.path}:{self.number}"

    def __iter__(self) -> Iterator[str]:
        """Each line without its line end. Raises RunError."""
        rest = b""
        for piece in Unpacked(self.path):
            *whole, rest = (rest + piece).split(b"\n")
            for line in whole:
                yield self._text(line)
            if self.has_bars and len(rest) > PIECE and b"\r" in rest:
                drawn, _, rest = rest.rpartition(b"\r")
                yield self._text(drawn)
                self.number -= 1  # the line continues
            if len(rest) > MAX_LINE:
                self.number += 1
                raise RunError(f"{self.where}: no end of it; expected lines of less than {MAX_LINE:,} bytes")
        if rest:
            self.is_cut = True
            yield self._text(rest)

    def _text(self, line: bytes) -> str:
        self.number += 1
        if len(line) > MAX_LINE:
            raise RunError(f"{self.where}: {len(line):,} bytes; expected lines of less than {MAX_LINE:,} bytes")
        try:
            text = line.decode("utf-8", "replace" if self.is_cut else self.errors)
        except UnicodeDecodeError as wrong:
            raise RunError(f"{self.where}: byte {wrong.start} is not UTF-8; expected text") from None
        if self.errors == "strict" and _GAP in text:
            self.has_gap, text = True, text.rpartition("\0")[2]
        return text.removeprefix("\ufeff").rstrip("\r") if self.number == 1 else text.rstrip("\r")


def json_lines(lines: Lines, expected: str) -> Iterator[Any]:
    """The JSON value of each line; an invalid last line is a truncated one. Raises RunError."""
    broken = ""
    for line in lines:
        if not line.strip():
            continue
        if broken:
            raise RunError(broken)
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            broken = f"{lines.where}: {line!r:.60} is not JSON; {expected}"
            continue
        yield document
    lines.is_cut = bool(broken) or lines.has_gap


MAX_NUMBER = 2**63
MAX_NAME = 200  # characters


def integer(value: object, what: str, where: str) -> int:
    """A whole number of 0 or more. Raises RunError."""
    text = str(value).strip().removesuffix(".0")  # tables with gaps contain whole numbers like this
    is_number = isinstance(value, (int, float, str)) and text.isascii() and text.isdecimal()
    if not is_number or len(text) > 19 or int(text) >= MAX_NUMBER:
        raise RunError(f"{where}: {what} is {value!r:.60}; expected a whole number of 0 or more")
    return int(text)


def seconds(value: object, what: str, where: str) -> float:
    """A non-negative duration. Raises RunError."""
    number = real(value, what, where)
    if number < 0:
        raise RunError(f"{where}: {what} is {value!r:.60}; expected a duration of 0 or more")
    return number


def real(value: object, what: str, where: str) -> float:
    """A finite number. Raises RunError."""
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        number = None
    if number is None or not isfinite(number):
        raise RunError(f"{where}: {what} is {value!r:.60}; expected a number")
    return number


def name(value: object, what: str, where: str) -> str:
    """A name on one line. Raises RunError."""
    if not (isinstance(value, str) and value.strip() and value.isprintable() and len(value) <= MAX_NAME):
        raise RunError(f"{where}: {what} is {value!r:.60}; expected a name of at most {MAX_NAME} characters")
    return value.strip()


@record
class Format:
    """A file format: its name, how its first bytes are recognized, and its reader.

    `begins_late` recognizes a file whose relevant part only begins further down.
    """

    name: str
    is_of: Callable[[bytes], bool]
    read: Callable[[RunFile], Iterable[Any]]  # facts accepted by run_data.py
    is_tried_last: bool = False
    begins_late: Callable[[RunFile], bool] | None = None
