"""nccl-tests: a collective of NVIDIA GPUs, one rank per GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from clusterproof.plugins.benchmarks import meters
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output, printed
from clusterproof.plugins.evidence.pairs import Failure, Reading
from clusterproof.plugins.evidence.perf import parse_nccl as log_form
from clusterproof.plugins.evidence.perf.facts_logs import Measured, NcclLog, NcclTests, Network, Row

COLLECTIVES = (
    *("all_reduce", "all_gather", "alltoall", "broadcast", "gather"),
    *("hypercube", "reduce", "reduce_scatter", "scatter", "sendrecv"),
)
PLACES = (  # of AWS's public image, of the Deep Learning AMI, of people's own builds
    "/opt/nccl-tests/build",
    "/usr/local/cuda*/efa/test-cuda*",
    "/opt/amazon/nccl-tests/build",
    "/usr/local/nccl-tests/build",
    "/usr/local/cuda*/nccl-tests/build",
)
REMEDY = "install nccl-tests, built with MPI=1, or name its program (the same path on every node)"
SIZE_BYTES = 2**30
ITERATIONS, WARM_UP = 20, 5
NOT_FOUND_EACH_OTHER = "the ranks did not find each other"
NETWORK_IN_LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}  # logs the line that names the provider

# One rank of each node prints which MPI the program is linked with; unknown for a script.
_MPI_LIBRARY = """\
case ${SLURM_LOCALID:-${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-0}}} in 0)
  libraries=$(ldd "$program" 2>/dev/null) && printf '# MPI library: %s\\n' "$(printf '%s\\n' "$libraries" \
| awk '$1 ~ /^libmpi/ { print $1; exit }')" ;;
esac
"""
_TAG = r"(?:\[\d{1,6},\d{1,6}\]<std(?:out|err)>:|\d{1,6}: )?"
_NCCL_LINE = r"[A-Za-z][\w.-]{0,252}:\d{1,10}:\d{1,10} \[\d{1,4}\] NCCL [^\n]{0,2000}\n"
_CUT_ROW = re.compile(rf"(?<=\s)(-?\d{{1,9}}) ?{_NCCL_LINE}(?:{_TAG}{_NCCL_LINE})*{_TAG}", re.ASCII)
_RANK_0 = re.compile(
    rf"^{_TAG}#?\s{{0,8}}Rank\s{{1,8}}0\s{{1,8}}(?:Group\s{{1,8}}\d{{1,6}}\s{{1,8}})?Pid\b", re.MULTILINE
)
_LINKED = re.compile(rf"^{_TAG}# MPI library: ([\w.+-]{{0,80}})$", re.MULTILINE | re.ASCII)
_NO_PMI = re.compile(
    r"not built with SLURM's PMI support|OPAL ERROR: Unreachable in file ext\dx_client\.c|PMI2?_Init fail"
)


def ranks(settings: MeterSettings) -> str:
    """The shell command of every rank. Raises ValueError."""
    if settings.collective not in COLLECTIVES:
        raise ValueError(f"{settings.collective!r:.80} is not a collective; expected one of {', '.join(COLLECTIVES)}")
    return (
        "unset NCCL_DEBUG_FILE\n"
        + meters.exports({**_log_wanted(settings), **settings.environment})
        + meters.finding_program(f"{settings.collective}_perf", settings.program, PLACES, REMEDY)
        + _MPI_LIBRARY
        + f'exec "$program" {_options(settings)} {meters.quoted_options(settings.options)}\n'
    )


def command(settings: MeterSettings, launch: str, _nodes: Sequence[str]) -> str:
    """The same, as a person types it. Raises ValueError."""
    return (
        f"{launch} {meters.typed(f'{settings.collective}_perf', settings, _log_wanted(settings), _options(settings))}"
    )


def _log_wanted(settings: MeterSettings) -> Mapping[str, str]:
    return {"NCCL_DEBUG": "WARN"} if settings.is_brief else NETWORK_IN_LOG


def _options(settings: MeterSettings) -> str:
    size = settings.size_bytes or SIZE_BYTES
    return f"-b {size} -e {size} -f 2 -g 1 -c 1 -n {ITERATIONS} -w {WARM_UP}"


def read(settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
    """The result of the run: for its largest size, the slower of out of place and in place.

    Both halves send the same bytes, so a slower half was disturbed: the pair is as fast as that. The average that
    nccl-tests prints covers all sizes, including small ones dominated by latency, and is never used.
    """
    output = outputs[0] if outputs else Output("", None)
    log = _log(output.text)
    rows = log.rows or _log(_CUT_ROW.sub(r"\1 ", output.text)).rows
    size = max((row.size_bytes for row in rows), default=0)
    largest = [row for row in rows if row.size_bytes == size]
    halves = [half for row in largest for half in (row.out_of_place, row.in_place) if half.busbw_gb_per_s is not None]
    slower = min(halves, key=lambda half: half.busbw_gb_per_s or 0.0, default=None)
    is_correct = _is_correct(log, rows, largest)
    problem, failure = _problem(settings, output, log, slower, size, is_correct)
    measured = None if problem else slower
    proven = printed.proven_network(output.sent_bytes, size * ITERATIONS // 2 if measured else 0)
    return Reading(
        busbw_gb_per_s=measured.busbw_gb_per_s if measured else None,
        algbw_gb_per_s=measured.algbw_gb_per_s if measured else None,
        time_us=measured.time_us if measured else None,
        size_bytes=size,
        is_correct=is_correct,
        network=_network(log.network) or proven,
        problem=problem,
        culprit=printed.culprit_in(output.text) if problem else "",
        seconds=output.seconds,
        ranks=log.ranks or 0,
        hosts=log.hosts,
        failure=failure,
    )


def by_hand(node: str, other: str, collective: str) -> str:
    """What a person types on one of the nodes."""
    known = collective if collective in COLLECTIVES else "all_reduce"
    return f"mpirun -np 16 --host {node}:8,{other}:8 {known}_perf -b 8G -e 8G -f 2 -g 1"


METER = Meter("nccl-tests", read, ranks=ranks, command=command, by_hand=by_hand)


def _log(text: str) -> NcclLog:
    return NcclTests(log_form.read(text)["nccl_tests"]).logs[0]  # type: ignore[arg-type]


def _problem(
    settings: MeterSettings, output: Output, log: NcclLog, slower: Measured | None, size: int, is_correct: bool | None
) -> tuple[str, Failure | None]:
    if is_correct is False:
        count = max(log.out_of_bounds or 0, sum(row.wrong for row in log.rows)) or "some"
        return f"wrong results: {count} values out of bounds", None
    if len(_RANK_0.findall(output.text)) > 1:
        return _alone(output.text)
    if output.exit != 0 and _NO_PMI.search(output.text):
        return f"{NOT_FOUND_EACH_OTHER}: its MPI saw no other rank", Failure.APART
    if output.exit != 0:
        return printed.problem_of(output, log.problems), printed.failure_in(output.text)
    return printed.of_largest(settings, slower.busbw_gb_per_s if slower else None, size, log.problems), None


def _alone(text: str) -> tuple[str, Failure | None]:
    """Why every rank believed to be the only one, from what their program is linked with."""
    linked = _LINKED.search(text)
    if linked and not linked[1]:
        return "every rank ran alone: this nccl-tests is built without MPI; build it with MPI=1", None
    has_mpi = f"nccl-tests has MPI ({linked[1]})" if linked else "nccl-tests may have MPI"
    return f"{NOT_FOUND_EACH_OTHER}: each ran alone, though {has_mpi}", Failure.APART


def _is_correct(log: NcclLog, rows: tuple[Row, ...], largest: list[Row]) -> bool | None:
    """False for a wrong value anywhere; True if the largest size was compared; None if nothing was."""
    if log.out_of_bounds or log.out_of_bounds_word == "FAILED" or any(row.wrong for row in rows):
        return False
    halves = [half for row in largest for half in (row.out_of_place, row.in_place)]
    counted = any(half.wrong is not None for half in halves)
    summed = log.out_of_bounds == 0 and any(half.deviation is not None for half in halves)
    return True if counted or summed else None


def _network(network: Network) -> str:
    """`efa, 32 devices`, `Socket`; everything that ranks named if they disagree."""
    names = [name for name in network.networks if not (network.providers and "Libfabric" in name)]
    nics = " or ".join(map(str, network.nics))
    networks = [printed.efa_devices(nics) if name == "efa" and nics else name for name in network.providers]
    return printed.one_line(" and ".join([*networks, *names]))
