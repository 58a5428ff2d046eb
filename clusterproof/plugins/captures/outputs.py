"""The outputs in one text, by collector; and those that no parser recognizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from clusterproof.plugins.captures.pieces import Piece, pieces
from clusterproof.plugins.captures.text import undecorated
from clusterproof.plugins.core.errors import raised_at
from clusterproof.plugins.evidence.kernel_log import parse as kernel_log
from clusterproof.plugins.evidence.kernel_log import parse_journal as journal
from clusterproof.plugins.evidence.kernel_log.line import ISO_DAY, SYSLOG_TIME, WORD
from clusterproof.plugins.evidence.parsing import TYPED, CaptureError, Form, count_one
from clusterproof.plugins.evidence.slurm import parse as slurm

MAX_HEAD = 1024 * 1024  # characters of an output used to recognize it; only logs are as long
SHORT, MAX_SHORT = 256, 4_000  # characters of a short output, and how many are read: each is tried with every parser
FEW, MAX_QUOTED = 3, 200  # lines and characters of a file without outputs that are quoted
NOTHING = ""  # collector for outputs that are understood but provide no fact, such as a clean DCGM watch
MAX_TYPED = 80  # characters of a command that are shown
_OF_LOGS = frozenset(form.name for form in (*kernel_log.FORMS, *journal.FORMS))
_OF_SLURM = frozenset(form.name for form in slurm.FORMS)
# Lines of the kernel, as dmesg and journalctl -k print them; UCX's have a time since 1970 between the brackets.
_OF_KERNEL = re.compile(
    r"^(?:(?:<\d>|kern {0,4}: ?\w{1,8} {0,4}: )?"
    rf"\[(?: {{0,12}}\d{{1,8}}\.\d{{6}}|{WORD} {SYSLOG_TIME} \d{{4}})\][ \[]"
    rf"|{ISO_DAY}T\d\d:\d\d:\d\d,\d{{6}}[+-]\d\d:\d\d "
    rf"|(?:{SYSLOG_TIME}|{ISO_DAY}T\S{{8,32}}) \S{{1,255}} kernel: )",
    re.MULTILINE,
)
_MIN_OF_KERNEL = 3  # lines below another output by which a log is known
_BUG_REPORT, _MAX_BEFORE = "Start of NVIDIA bug report log file", 4096  # its first line, and where to look for it


@dataclass(frozen=True, slots=True)
class CollectorPart:
    """The data in one output for one collector."""

    collector: str
    rank: int
    value: object


@dataclass(frozen=True)
class _Whole:
    """A piece of text, without what belongs to other parsers: log lines and reasons of nodes may contain anything."""

    text: str

    def to(self, form: Form) -> str:
        """The text for a parser."""
        if form.name in _OF_LOGS:
            return self.text
        return self._unlogged if form.name in _OF_SLURM else self._unlisted

    @cached_property
    def _unlogged(self) -> str:
        return kernel_log.without_logged(self.text)

    @cached_property
    def _unlisted(self) -> str:
        is_slurms = any(form.recognises(self._unlogged[:MAX_HEAD]) for form in slurm.FORMS)
        return slurm.listed_in(self._unlogged).rest if is_slurms else self._unlogged


def of_text(text: str, forms: Sequence[Form]) -> tuple[list[CollectorPart], list[str]]:
    """The contents of a text, and its problems; unknown parts of a bug report, which nobody chose, are no problem."""
    names_unknown = _BUG_REPORT not in text[:_MAX_BEFORE]
    problems: list[str] = []
    for output in undecorated(text):
        parts, unread = _of_outputs(output, forms, names_unknown)
        if parts:
            return parts, unread
        problems = unread or problems
    return [], problems


def _of_outputs(text: str, forms: Sequence[Form], names_unknown: bool) -> tuple[list[CollectorPart], list[str]]:
    outputs, problems = _not_too_many(list(_outputs(text, forms)))
    parts: list[CollectorPart] = []
    passed_over, too_large = _passed_over([piece.text for output in outputs for piece in output], forms)
    problems += too_large
    known: dict[str, tuple[list[CollectorPart], list[str]]] = {}  # a command that was run in a loop repeats itself
    for output in outputs:
        before = len(parts) + len(problems)
        for piece in output:
            if piece.text not in known:
                known[piece.text] = _of_piece(piece.text, forms, passed_over.get(piece.text, ()))
            parts += known[piece.text][0]
            problems += known[piece.text][1]
        typed = output[0].typed
        if typed and names_unknown and len(parts) + len(problems) == before:
            title = first_line("".join(piece.text for piece in output[:2]))
            problems.append(f"{typed:.{MAX_TYPED}} is none of the known forms{title}")
    return parts, problems


def _outputs(text: str, forms: Sequence[Form]) -> Iterator[list[Piece]]:
    """The pieces of a text, those of one command joined."""
    output: list[Piece] = []
    for piece in pieces(text, forms):
        if output and not piece.goes_on:
            yield output
            output = []
        output.append(piece)
    if output:
        yield output


def _not_too_many(outputs: list[list[Piece]]) -> tuple[list[list[Piece]], list[str]]:
    """The outputs without short ones that are followed by too many others, and a line about these."""
    short = [piece.text for output in outputs for piece in output if len(piece.text) < SHORT]
    last = _last(short, MAX_SHORT, count_one)
    if len(last) == len(short):
        return outputs, []
    left_out = set(short).difference(last)
    shown = ([piece for piece in output if piece.text not in left_out] for output in outputs)
    problem = f"{len(short):,} outputs of fewer than {SHORT} characters, of which the last {len(last):,} were read"
    return [output for output in shown if output], [problem]


def _passed_over(texts: Sequence[str], forms: Sequence[Form]) -> tuple[dict[str, list[str]], list[str]]:
    """The parsers for which an output is skipped because too many follow, and a line for each parser."""
    passed_over: dict[str, list[str]] = {}
    problems: list[str] = []
    for form in (form for form in forms if form.most):
        of_form = [text for text in texts if form.recognises(text[:MAX_HEAD])]
        last = _last(of_form, form.most, form.size)
        for text in set(of_form).difference(last):
            passed_over.setdefault(text, []).append(form.name)
        if len(last) < len(of_form):
            problems.append(f"{form.name}: {len(of_form):,} outputs, of which the last {len(last)} were read")
    return passed_over, problems


def _last(texts: Sequence[str], most: int, size: Callable[[str], int]) -> list[str]:
    """The last outputs up to a total size; repetitions are read once."""
    seen: set[str] = set()
    left = most
    for number, text in enumerate(reversed(texts)):
        left -= 0 if text in seen else size(text)
        if left < 0:
            return list(texts[len(texts) - number :])
        seen.add(text)
    return list(texts)


def _of_piece(text: str, forms: Sequence[Form], passed_over: Collection[str]) -> tuple[list[CollectorPart], list[str]]:
    """The contents of a piece, and its problems."""
    parts: list[CollectorPart] = []
    problems = _unread_log(text, forms)
    whole = _Whole(text)
    for form in forms:
        try:
            if not form.recognises(text[:MAX_HEAD]):
                continue
            shown = whole.to(form)
            if not form.recognises(shown[:MAX_HEAD]):
                continue
            if form.name in passed_over:
                parts.append(CollectorPart(NOTHING, form.rank, None))
                continue
            problems += form.unclear(shown)
            collectors = form.read(shown)
        except CaptureError as problem:
            problems.append(f"{form.name}: {problem}")
        except Exception as problem:  # captured files may contain anything
            problems.append(f"{form.name}: {type(problem).__name__} in {raised_at(problem)}")
        else:
            parts += [CollectorPart(collector, form.rank, value) for collector, value in collectors.items()]
            parts += [] if collectors else [CollectorPart(NOTHING, form.rank, None)]
    return parts, problems


def _unread_log(text: str, forms: Sequence[Form]) -> list[str]:
    """A line on the kernel's log that stands below another output, where a process's name may imitate one."""
    count = sum(1 for _ in islice(_OF_KERNEL.finditer(text), _MIN_OF_KERNEL))
    if count < _MIN_OF_KERNEL or any(form.recognises(text[:MAX_HEAD]) for form in forms if form.name in _OF_LOGS):
        return []
    return ["dmesg: not read below another output; expected its command above it, or a file of its own"]


def first_line(text: str) -> str:
    """The content of a short text, after a colon; empty for a longer one."""
    lines = [line for line in text.strip().splitlines() if not line.startswith(TYPED)]
    return "" if len(lines) > FEW else f": {lines[0]:.{MAX_QUOTED}}" if lines else ": it is empty"
