"""Splits a text by the commands whose outputs it has; what users can write within an output separates nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from clusterproof.plugins.evidence.kernel_log.parse import FURTHER, is_logged
from clusterproof.plugins.evidence.kernel_log.parse_journal import EXPORTED
from clusterproof.plugins.evidence.kernel_log.prefixes import shows_all_programs
from clusterproof.plugins.evidence.parsing import CHOSEN, TYPED, Form, no_line
from clusterproof.plugins.kubernetes.parse import begins_events

_WORDS = """
nvidia-smi nvidia-bug-report.sh nv-fabricmanager dcgmi dmesg journalctl lspci lscpu ibstat ibstatus ibv_devinfo
ibv_devices rdma fi_info findmnt lsblk uname ulimit systemctl sinfo scontrol sacct squeue lfs lctl numactl ethtool
sysctl chronyc timedatectl hostnamectl dmidecode neuron-ls neuron-top modinfo lsmod uptime tail grep sudo hostname
ec2-metadata nvme cpupower dpkg rpm curl ibdev2netdev kubectl smartctl mdadm mlxlink mcelog ras-mc-ctl perfquery
swapon aws mlnx_qos dcb
"""
_ALSO_IN_COMMENTS = "cat ls df mount free ip ps top head time timeout for date env"
# First words of commands that people type on a node; those of the second list also begin comments.
_UNMISTAKABLE = frozenset(_WORDS.split())
COMMANDS = _UNMISTAKABLE.union(_ALSO_IN_COMMENTS.split())
_PROMPT = re.compile(
    r"(?:\([\w.+-]{1,40}\) ?)?"  # a Python environment's name
    r"(?:\[?[\w.-]{1,64}@[\w.-]{1,64}[ :][^#$]{0,200}[#$] ?|\$ )(?P<typed>.*)"  # user@host:~$
)
# Separators of outputs: parts of an nvidia-bug-report.log, and the Markdown and HTML blocks in which people paste.
_RULE = re.compile(r"(?:_{20,}|(?:```|~~~)\w{0,20})\s*")
DIVIDER = "```\n"
_TAGS = re.compile(
    r"^(?:(?:<summary>[^<>\n]{0,200}</summary>|</?(?:pre|code|details|summary)\b[^<>\n]{0,200}>) ?){1,8}\n?",
    re.MULTILINE,
)
# Of a line: users' words are at line ends, so they separate nothing.
_LAST_TAGS = re.compile(r"(?:</(?:pre|code|details)>){1,3}$", re.MULTILINE)
_PROMPT_SIGNS = "#+%>"  # which other things begin with too
# Kernel messages from before this boot say nothing about the node's current state.
_EARLIER_BOOT = re.compile(r"journalctl (?:(?!journalctl ).)*(?:-b|--boot)[ =]?-[1-9]")
_OLD_LOGS = "Scanning kernel log files"  # a bug report's lines from every log on the disk, however old
_FRAMES = ("==", "---", "##", "***", ">>", "<<")  # prefixes of headings that people print between outputs
_OF_JOURNAL = re.compile(r'\s{0,8}"[A-Z_][A-Z0-9_]{0,80}" :')  # in an entry of `journalctl -o json-pretty`
_FIRST = 16  # lines of an output that show whether it is a log: JSON among its lines belongs to it
_SHORTEST = len("<?xml")  # of first lines of outputs
_LONGEST_COMMAND = 2000  # characters
_LOOKED_AT = 300  # characters of a command that are checked for a choice of GPUs
# Commands whose output does not name the disk, port, interface or unit that it is about, or that it is a part.
_OF_WHAT = re.compile(
    r"(?:^|[\s/])(?:nvme smart-log|smartctl|mlxlink|mlnx_qos|dcb|free|findmnt|dcgmi dmon"
    r"|(?<!lfs )df|mount|proc/.{0,16}mount(?:s|info)|(?:fi_info|systemctl) .{0,200}grep)(?![\w.-])"
)
# Commands known as such without a prompt, as their outputs need them: for a header, or for what they are about.
_QUERY = re.compile(r"(?:sudo )?(?:/\S{1,100}/)?nvidia-smi(?: -\S{1,20000}| \d{1,3}(?:,\d{1,3}){0,31}){1,16}")
_BARE = ("mlxlink -", "mlnx_qos -", "smartctl -", "nvme smart-log /", "free -", "findmnt -", "sudo ")
_COLUMNS = re.compile(r"--query-[a-z-]{2,40}[= ]([\w.,-]{1,20000})")


@dataclass(frozen=True, slots=True)
class Piece:
    """One command's output, or a part of it; `typed` is the command line if the text shows it above the first part."""

    text: str
    typed: str = ""
    goes_on: bool = False  # continues the output of the previous piece


def pieces(text: str, forms: Iterable[Form]) -> Iterator[Piece]:
    """The outputs in a text, in order; each object of JSON is one, but for the entries of a journal.

    What looks like another output within the continuation lines of a log message may be written by a user. In
    entries of `journalctl -o export`, and in events described by kubectl, these lines are unindented.
    """
    begins = {form.begins for form in forms}.difference({no_line})
    lines: list[str] = []
    typed, goes_on = "", False
    is_of_users = False
    head = ""  # the last line that was not a continuation
    every = _LAST_TAGS.sub("", _TAGS.sub(DIVIDER, text)).split("\n")
    for line, below in zip(every, [*every[1:], ""], strict=True):
        is_document = begins_document(line, head) and not (
            _OF_JOURNAL.match(below) or any(map(is_logged, lines[:_FIRST]))
        )
        is_of_users = is_of_users or is_raw(line) or (bool(lines) and begins_events(lines[-1], line))
        is_further = line.startswith(FURTHER) and is_logged(head)
        head_before, head = head, head if not line or is_further else line
        is_users = is_of_users or is_further
        command = command_in(line) if line and not is_users else None
        is_another = lines and not is_users
        if command is not None or (
            is_another and (is_document or (len(line) >= _SHORTEST and any(is_first(line) for is_first in begins)))
        ):
            yield from _piece(lines, typed, goes_on)
            lines, goes_on = [], command is None
            typed = command or (typed if is_document and not head_before.endswith("}") else "")
        if command is None:
            lines.append(line)
    yield from _piece(lines, typed, goes_on)


def begins_document(line: str, before: str) -> bool:
    """Whether a document of JSON begins with this line, below such a line of another output.

    One on a single line ends with it: users name what df and /proc/mounts show at the beginning of a line.
    """
    if before.startswith(("{", "[")) or before.endswith(("{", "[", ",")):
        return False
    return line == "{" if before == "}" else line in ("{", "[") or (line.startswith(('{"', "[{")) and _is_json(line))


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def is_raw(line: str) -> bool:
    """Whether an entry of `journalctl -o export` begins with this line."""
    return line.startswith(EXPORTED)


def _piece(lines: list[str], typed: str, goes_on: bool) -> Iterator[Piece]:
    start = next((index for index, line in enumerate(lines) if line.strip()), None)
    if start is None or _EARLIER_BOOT.search(typed) or lines[start].startswith(_OLD_LOGS):
        return
    yield Piece(
        "\n".join([*_of_what(typed), *_columns(typed), *lines, *[CHOSEN] * _chooses_gpus(typed)]) + "\n",
        typed,
        goes_on,
    )


def command_in(line: str) -> str | None:
    """The command that a line shows as typed, empty for a mere separator; None for a line of an output."""
    if len(line) > _LONGEST_COMMAND or not line:
        return None
    if _is_command_without_prompt(line):
        return line.strip()
    if line[0].isalnum() and "@" not in line[:70]:
        return None
    if _RULE.fullmatch(line):
        return ""
    prompt = _PROMPT.fullmatch(line.strip())
    return prompt["typed"].strip() if prompt else _heading(line)


def _is_command_without_prompt(line: str) -> bool:
    if line.startswith(_BARE) and _OF_WHAT.search(line):
        return True
    return "nvidia-smi" in line and bool(_COLUMNS.search(line) and _QUERY.fullmatch(line.strip()))


def _heading(line: str) -> str | None:
    """The command in a heading: `=== dmesg ===`, `+ lspci -nn`, `*** /proc/meminfo`, `/usr/bin/lspci -v`."""
    if line.startswith(("*** /", "*** ls: ")):  # of an nvidia-bug-report.log
        return "cat " + line[4:] if line[4] == "/" else ""
    is_framed = line.startswith(_FRAMES)
    named = line.strip("=-#*<>+% \t")
    word = (named.split(maxsplit=1) or [""])[0].rstrip(":")
    program = word.rpartition("/")[2]
    if is_framed or word.startswith(("/usr/", "/bin/", "/sbin/", "/opt/")):
        return named if program in COMMANDS else None
    return named if line[0] in _PROMPT_SIGNS and program in _UNMISTAKABLE else None


def _columns(typed: str) -> list[str]:
    """The header line that a query without a header omits."""
    query = _COLUMNS.search(typed) if "noheader" in typed else None
    return [", ".join(query[1].split(","))] if query else []


def _of_what(typed: str) -> list[str]:
    """A line that says what an output is about, if the output itself does not."""
    looked_at = typed[:_LOOKED_AT]
    return [f"{TYPED}{typed}"] if _OF_WHAT.search(looked_at) or shows_all_programs(looked_at) else []


def _chooses_gpus(typed: str) -> bool:
    """Whether `nvidia-smi -q` is limited to some GPUs, and piped: then nothing says that there are others."""
    first, pipe, _ = typed[:_LOOKED_AT].partition("|")
    arguments = first.split()
    return (
        bool(pipe)
        and "nvidia-smi" in first
        and "-q" in arguments
        and any(word.startswith(("-i", "--id")) for word in arguments)
    )
