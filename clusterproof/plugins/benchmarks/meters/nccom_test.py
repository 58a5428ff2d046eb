"""nccom-test: a collective of Neuron devices. It starts its own ranks on both nodes over ssh."""

from __future__ import annotations

from collections.abc import Sequence

from clusterproof.plugins.benchmarks import meters
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output, printed
from clusterproof.plugins.evidence.pairs import Reading
from clusterproof.plugins.evidence.perf import parse_nccom as log_form
from clusterproof.plugins.evidence.perf.facts_logs import Nccom, NccomLog, NccomRow

COLLECTIVES = {
    "all_reduce": "allr",
    "all_gather": "allg",
    "reduce_scatter": "redsct",
    "sendrecv": "sendrecv",
    "alltoall": "alltoall",
}
PLACES = ("/opt/aws/neuron/bin",)
REMEDY = "install aws-neuronx-tools, or name its program (the same path on every node)"
SIZE_BYTES = 2**30
RANKS = 64  # for two nodes, if not specified
ITERATIONS, WARM_UP = 20, 5
PORT = 45654

_FIRST_RANK_ONLY = """\
case ${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-0}}}} in 0) ;; *) exit 0 ;; esac
"""
# CLUSTERPROOF_HOSTS in the environment: the space-separated nodes, if Slurm does not list them
_NODES = """\
[ -n "$CLUSTERPROOF_HOSTS" ] || CLUSTERPROOF_HOSTS=$(scontrol show hostnames "$SLURM_STEP_NODELIST" 2>/dev/null)
set -- $CLUSTERPROOF_HOSTS
[ $# -gt 0 ] || { printf 'clusterproof: %s: nobody says on which nodes to run\\n' "$(uname -n)" >&2; exit 1; }
"""
_CORES = """\
cores=$(/opt/aws/neuron/bin/neuron-ls --json-output 2>/dev/null | tr ',{}' '\\n' \
| awk -F: '/"nc_count"/ { sum += $2 } END { print sum + 0 }')
[ "$cores" -gt 0 ] || { printf 'clusterproof: %s: neuron-ls counts no cores\\n' "$(uname -n)" >&2; exit 1; }
"""
_ROOT = f"""\
root=$(getent ahostsv4 "$1" | awk '$1 !~ /^127\\./ {{ print $1; exit }}')
export NEURON_RT_ROOT_COMM_ID=${{root:-$1}}:{PORT}
"""
_MPIRUN_AS_ROOT = "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n"
_NOT_UNDER_SLURM = "unset SLURM_JOB_ID SLURM_JOBID SLURM_NODELIST SLURM_JOB_NODELIST SLURM_STEP_NODELIST\n"


def ranks(settings: MeterSettings) -> str:
    """The shell command of every rank: the first starts nccom-test for all, the others exit. Raises ValueError."""
    known = COLLECTIVES.get(settings.collective)
    if known is None:
        raise ValueError(f"{settings.collective!r:.80} is not a collective; expected one of {', '.join(COLLECTIVES)}")
    cores = f"cores={settings.ranks_per_node}\n" if settings.ranks_per_node else _CORES
    return (
        _FIRST_RANK_ONLY
        + meters.exports(settings.environment)
        + meters.finding_program("nccom-test", settings.program, PLACES, REMEDY)
        + _NODES
        + cores
        + _MPIRUN_AS_ROOT
        + _NOT_UNDER_SLURM  # its mpirun would wait for a step of the job that this one occupies
        + _ROOT
        + f"set -- -r $((cores * $#)) -N $# {_options(settings)}"
        f' --non-interactive {meters.quoted_options(settings.options)} {known} --hosts "$@"\n'
        + "printf 'nccom-test %s\\n' \"$*\"\n"  # logs its options
        + 'exec "$program" "$@"\n'
    )


def command(settings: MeterSettings, _launch: str, nodes: Sequence[str]) -> str:
    """The same, as a person types it: it starts its ranks itself. Raises ValueError."""
    count = len(nodes)
    ranks_of_all = count * (settings.ranks_per_node or RANKS // 2)
    run = meters.typed("nccom-test", settings, {}, f"-r {ranks_of_all} -N {count} {_options(settings)}")
    return f"{run} {COLLECTIVES[settings.collective]} --hosts {' '.join(nodes)}"


def _options(settings: MeterSettings) -> str:
    size = settings.size_bytes or SIZE_BYTES
    return f"-b {size} -e {size} -f 2 -n {ITERATIONS} -w {WARM_UP} -d fp32 --check"


def read(settings: MeterSettings, outputs: tuple[Output, ...]) -> Reading:
    """The result of the run: for its largest size the slowest row, in 10^9 bytes where nccom-test means GiB."""
    output = outputs[0] if outputs else Output("", None)
    log = Nccom(log_form.read_table(output.text)["nccom"]).logs[0]  # type: ignore[arg-type]
    size = max((row.size_bytes for row in log.rows), default=0)
    largest = [row for row in log.rows if row.size_bytes == size and row.busbw_gb_per_s is not None]
    slowest = min(largest, key=lambda row: row.busbw_gb_per_s or 0.0, default=None)
    problem = _problem(settings, output, log, slowest, size)
    measured = None if problem else slowest
    return Reading(
        busbw_gb_per_s=measured.busbw_gb_per_s if measured else None,
        algbw_gb_per_s=measured.algbw_gb_per_s if measured else None,
        time_us=measured.time_us if measured else None,
        size_bytes=size,
        is_correct=_is_correct(log, measured is not None),
        network=printed.proven_network(output.sent_bytes, size * ITERATIONS // 2 if measured else 0),
        problem=problem,
        culprit=printed.culprit_in(output.text) if problem else "",
        failure=printed.failure_in(output.text) if problem else None,
        seconds=output.seconds,
        ranks=log.ranks or 0,
    )


def by_hand(node: str, other: str, collective: str) -> str:
    """What a person types on one of the nodes."""
    known = COLLECTIVES.get(collective, "allr")
    return f"nccom-test -r {RANKS} -N 2 -b 1G -e 1G -d fp32 --check {known} --hosts {node} {other}"


METER = Meter("nccom-test", read, ranks=ranks, starts_ranks=True, command=command, by_hand=by_hand)


def _problem(settings: MeterSettings, output: Output, log: NccomLog, slowest: NccomRow | None, size: int) -> str:
    if output.exit != 0:
        return printed.problem_of(output, log.problems)
    if mismatch := _mismatch(log):
        return printed.one_line(f"wrong results: {mismatch}")
    return printed.of_largest(settings, slowest.busbw_gb_per_s if slowest else None, size, log.problems)


def _is_correct(log: NccomLog, is_well: bool) -> bool | None:
    if _mismatch(log):
        return False
    return True if is_well and log.is_checked else None


def _mismatch(log: NccomLog) -> str:
    return next((line for line in log.problems if "mismatch" in line.lower()), "")
