"""fi_pingpong: a large message back and forth over libfabric, with any of its providers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from clusterproof.plugins.benchmarks import meters
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output, printed
from clusterproof.plugins.evidence.pairs import Reading, is_believable
from clusterproof.plugins.evidence.parsing import bytes_of, number

PLACES = ("/opt/amazon/efa/bin",)
REMEDY = "install the EFA installer's libfabric or the package libfabric-bin, or name its program"
SIZE_BYTES = 16 * 2**20
ITERATIONS = 50
COLUMNS = ["bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"]
REFUSALS = ("Connection refused",)
NOT_MET = "failed to connect: Connection refused"  # to the server itself; devices may refuse a connection, too


def server(settings: MeterSettings, port: int) -> str:
    """The shell command of the waiting end. Raises ValueError."""
    return _program(settings) + meters.serving(f'"$program" {_options(settings)} -B {port}')


def client(settings: MeterSettings, address: str, port: int) -> str:
    """The shell command of the connecting end. Raises ValueError."""
    run = f'"$program" {_options(settings)} -P {port} {shlex.quote(address)}'
    return _program(settings) + meters.retried_until_accepted(run, REFUSALS) + 'exit "$ended"\n'


def read(settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
    """The result of the run: the largest size's MB/sec, for both directions together: as slow as the slower one.

    Its `-c` is not used: it compares a buffer that may already contain the next message. So results are unverified.
    """
    ours, theirs = printed.client_and_server(outputs)
    size, times, mb_per_s, usec = max(_rows(ours.text), default=(0, 0, 0.0, 0.0))
    problem = _problem(ours, size, mb_per_s, theirs)
    if problem:
        has_not_met = ours.exit is not None and NOT_MET in ours.text
        return replace(printed.failed(problem, (ours, theirs), has_not_met), size_bytes=size)
    return Reading(
        busbw_gb_per_s=mb_per_s / 1000,
        algbw_gb_per_s=mb_per_s / 1000,
        time_us=usec,
        size_bytes=size,
        network=_network(settings, ours, theirs, size * times),
        seconds=max(ours.seconds, theirs.seconds),
    )


def command(settings: MeterSettings, _launch: str, nodes: Sequence[str]) -> str:
    """What a person types on both nodes. Raises ValueError."""
    node, other = nodes
    run = meters.typed("fi_pingpong", replace(settings, options=""), {}, _options(settings))
    return f"{run} on {node}, then on {other}: {run} {node}"


def by_hand(node: str, other: str, _collective: str) -> str:
    """What a person types on both nodes."""
    run = f"fi_pingpong -p efa -e rdm -S {SIZE_BYTES}"
    return f"{run} on {other}, then on {node}: {run} {other}"


METER = Meter("fi_pingpong", read, server=server, client=client, command=command, by_hand=by_hand)


def _program(settings: MeterSettings) -> str:
    environment = {"FI_EFA_ENABLE_SHM_TRANSFER": "0", **settings.environment}  # otherwise ends on one host use memory
    return meters.exports(environment) + meters.finding_program("fi_pingpong", settings.program, PLACES, REMEDY)


def _options(settings: MeterSettings) -> str:
    provider = "" if _provider(settings) else "-p tcp "
    size = settings.size_bytes or SIZE_BYTES
    return f"{provider}-e rdm -I {ITERATIONS} -S {size} {meters.quoted_options(settings.options)}".rstrip()


def _provider(settings: MeterSettings) -> str:
    """The provider in the options."""
    options = shlex.split(settings.options)
    following = [after for before, after in pairwise(options) if before == "-p"]
    joined = [word[2:] for word in options if word.startswith("-p") and len(word) > 2]
    return next(iter(following + joined), "")


def _rows(text: str) -> list[tuple[int, int, float, float]]:
    """Size in bytes, messages of each end, MB/sec and microseconds per message; complete rows only."""
    rows = []
    is_table = False
    for line in text.split("\n"):
        cells = line[:200].split()
        if cells == COLUMNS:
            is_table = True
        elif is_table and len(cells) == len(COLUMNS):
            size, sent, acknowledged = bytes_of(cells[0]), number(cells[1]), number(cells[2].lstrip("="))
            mb_per_s, usec = number(cells[5]), number(cells[6])
            if size and sent and sent == acknowledged and mb_per_s is not None and usec is not None:
                rows.append((size, int(sent), mb_per_s, usec))
    return rows


def _problem(ours: Output, size: int, mb_per_s: float, theirs: Output) -> str:
    if ours.exit != 0 or not size:
        problem = printed.problem_of(ours) if ours.exit != 0 else f"no whole row; {printed.problem_of(ours)}"
        return printed.with_server(problem, theirs)
    if not is_believable(mb_per_s / 1000):
        return f"it measured {mb_per_s:g} MB/s; expected more than 0, and what a network can do"
    return ""


def _network(settings: MeterSettings, ours: Output, theirs: Output, carried_bytes: int) -> str:
    """By the counters if an end has them; else EFA if its provider was requested, which uses nothing else."""
    if ours.sent_bytes or theirs.sent_bytes:
        return printed.proven_by_ends([(ours, carried_bytes), (theirs, carried_bytes)])
    return printed.EFA if _provider(settings) == printed.EFA else ""
