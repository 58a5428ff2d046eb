"""Starts ranks with `mpirun` (Open MPI): over ssh from the first node, or on pods through our own program."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from clusterproof.plugins.agent.frame import printable
from clusterproof.plugins.agent.payload import joined
from clusterproof.plugins.benchmarks.launchers import FOLDER, MeterCampaign, attributed, check_settings, typed
from clusterproof.plugins.benchmarks.launchers.by_visits import ByVisits, Outcome, PairMeasuring
from clusterproof.plugins.benchmarks.launchers.cleanup import ARGUMENT
from clusterproof.plugins.benchmarks.launchers.client_server import MAX_ADDRESSES, measured_by_visits
from clusterproof.plugins.benchmarks.launchers.on_node import PYTHON
from clusterproof.plugins.benchmarks.launchers.peer import WHERE, WORD
from clusterproof.plugins.benchmarks.launchers.ranks import merged, rank_shell, with_advice
from clusterproof.plugins.benchmarks.launchers.visit import ENDS_S, MAX_BYTES, NodeAnswer, failure_of
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings, Output
from clusterproof.plugins.core.cluster import is_loaded_by_pods
from clusterproof.plugins.evidence.pairs import Failure, Reading
from clusterproof.plugins.transport import Unusable

SETTING = "mpirun_options"  # further arguments for mpirun
NOT_REACHED, NOT_THERE = "cp-not-reached:", "cp-no-mpirun:"
LOGIN_S = 5

# Every other node is called by its first name that leads there: the suite's names for nodes may be unknown there.
# mpirun starts its daemons from the first node only: no other node has to log in anywhere.
START = """t() {{ i=$1;n=$2;w="no name of it is known";shift 2
for h in "$n" "$@";do
w=$(ssh -n -o BatchMode=yes -o ConnectTimeout={login_s} "$h" uname -n 2>&1)&&
[ "$(printf %s "$w"|tail -n 1)" = "$n" ]&&echo "$i $h"&&return
done
printf '%s\\n' "{not_reached} $i $(printf %s "$w"|tail -n 1)"
}}
o=$({others}wait)
case $o in *{not_reached}*)printf '%s\\n' "$o";exit 255;;esac
m=$(command -v mpirun)||{{ echo "{not_there}";exit 127; }}
n=$(uname -n);l=$n:{ranks};export CLUSTERPROOF_HOSTS="$n"
for h in $(printf '%s\\n' "$o"|sort -n|cut -d' ' -f2);do
l=$l,$h:{ranks};CLUSTERPROOF_HOSTS="$CLUSTERPROOF_HOSTS $h"
done
set -- "$m" --host "$l" -np {all} --bind-to none --mca {argument} {run} {options}
{alone}exec "$@" /bin/sh -c {rank}
"""
# A meter that starts its ranks itself is started without mpirun, which cannot be nested; it marks its ranks alike.
ALONE = "set --;export OMPI_MCA_{argument}={run} PRTE_MCA_{argument}={run}\n"
OWN_MPIRUN = "expected the mpirun of the MPI that the program is built with on PATH: --meter-env PATH=…"
NO_TREE_SPAWN = ("OMPI_MCA_plm_rsh_no_tree_spawn", "PRTE_MCA_plm_ssh_no_tree_spawn")  # of Open MPI 4, and of 5
ENVIRONMENT = dict.fromkeys(("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", *NO_TREE_SPAWN), "1")


def mpirun(campaign: MeterCampaign) -> ByVisits:
    """The launcher for rank meters without Slurm. Raises Unusable for another meter."""
    if not campaign.meter.is_collective:
        raise Unusable(f"{campaign.meter.name} has two ends; expected the launcher ssh or srun for it, and not mpirun")
    check_settings(campaign)
    return ByVisits(campaign, by_mpirun)


def by_mpirun(turn: PairMeasuring) -> Outcome:
    """Visit the first node, and start all nodes' ranks from there."""
    campaign = turn.campaign
    a, *others = turn.together
    request = {
        "commands": [{"shell": start_shell(turn), "environment": ENVIRONMENT}],
        "deadline_s": campaign.run_s,
        "most_bytes": MAX_BYTES,
    }
    answer = turn.visit(a, request, campaign.run_s + ENDS_S)
    if answer.unreached:
        problem, failure = f"{a} did not answer: {answer.unreached}", failure_of([answer])
        return Outcome(Reading(problem=problem, failure=failure), tuple(turn.together))
    (output,) = answer.outputs
    unreached = re.findall(rf"^{NOT_REACHED} ([1-9]\d{{0,4}}) (.*)", output.text, re.MULTILINE)
    by_number = {int(number): reason for number, reason in unreached}
    why = {node: by_number[number] for number, node in enumerate(others, 1) if number in by_number}
    if why:
        return Outcome(Reading(problem=_not_reached(a, why)))
    if re.search(rf"^{NOT_THERE}", output.text, re.MULTILINE):
        return Outcome(Reading(problem=f"{a}: no mpirun on PATH; expected Open MPI on every node", culprit=a))
    reading = campaign.meter.read(campaign.settings, (merged(output, turn.run),))
    if reading.failure is Failure.APART:
        reading = with_advice(reading, OWN_MPIRUN)
    reading = typed(campaign, reading, launch_by_hand(campaign, tuple(turn.together)), turn.together)
    called = {node: [answer.name, *answer.addresses] for node, answer in turn.where.items()}
    return Outcome(attributed(reading, called, output.exit is None), () if output.exit == 0 else tuple(others))


def start_shell(turn: PairMeasuring) -> str:
    """The script for the first node."""
    nodes = tuple(turn.together)
    ranks = turn.campaign.ranks_per_node
    return START.format(
        others="".join(_log_in(number, turn.where[node], node) for number, node in enumerate(nodes[1:], 1)),
        login_s=LOGIN_S,
        not_reached=NOT_REACHED,
        not_there=NOT_THERE,
        ranks=ranks,
        all=len(nodes) * ranks,
        argument=ARGUMENT,
        run=turn.run,
        alone=ALONE.format(argument=ARGUMENT, run=turn.run) if turn.campaign.meter.starts_ranks else "",
        options=_options(turn.campaign),
        rank=shlex.quote(rank_shell(turn.campaign, turn.run)),
    )


def _log_in(number: int, answer: NodeAnswer, node: str) -> str:
    """The line that finds a name by which the node can be reached."""
    addresses = [address for address in answer.addresses if ":" not in address][:MAX_ADDRESSES]
    names = dict.fromkeys(name for name in (node, *addresses) if name != answer.name)
    return f"t {number} {' '.join(map(shlex.quote, (answer.name, *names)))}&\n"


def launch_by_hand(campaign: MeterCampaign, nodes: Sequence[str]) -> str:
    """The command with which a person starts ranks on these nodes, from the first one."""
    ranks = campaign.ranks_per_node
    hosts = ",".join(f"{node}:{ranks}" for node in nodes)
    variables = " ".join(f"{name}=1" for name in NO_TREE_SPAWN)
    tree = f"env {variables} " if len(nodes) > 2 else ""  # otherwise other nodes would have to log in too
    return f"{tree}mpirun --host {hosts} -np {len(nodes) * ranks} --bind-to none {_options(campaign)}".strip()


def _options(campaign: MeterCampaign) -> str:
    """The user's further arguments for mpirun, each quoted for a shell."""
    return shlex.join(shlex.split(campaign.limits.settings.get(SETTING, "")))


def _not_reached(a: str, why: Mapping[str, str]) -> str:
    b, output = next(iter(why.items()))
    more = f" and {len(why) - 1} more nodes" if len(why) > 1 else ""
    return (
        f"{a} does not reach {b}{more} over ssh: {printable(output)}; expected that one may log in from node to node "
        f"without being asked: a key on {a} that {b} lets in, and {b}'s host key in a known_hosts of {a}"
    )


SOURCE = "CLUSTERPROOF_PEER_SOURCE"
TRAVELS = tuple(FOLDER / name for name in ("pipes.py", "rendezvous.py", "peer.py"))
SERVE = f'exec "${PYTHON}" -I -c "${SOURCE}" {{port}}\n'
# Open MPI 4 reads the first of the agent's names, 5 the second. The meter reports a rank's missing program.
START_BY_PODS = f"""m=$(command -v mpirun)||{{{{ echo "no mpirun on PATH; expected Open MPI in the image";exit 127; }}}}
a="${PYTHON} -I -c exec(__import__('os').environ['{SOURCE}'])"
n=$(uname -n);l=$n:{{ranks}};w=;export OMPI_MCA_plm_rsh_agent="$a" PRTE_MCA_plm_ssh_agent="$a" CLUSTERPROOF_HOSTS="$n"
set -- {{addresses}}
for h in {{names}};do w="$w $h=$1:{{port}}";l=$l,$h:{{ranks}};CLUSTERPROOF_HOSTS="$CLUSTERPROOF_HOSTS $h";shift;done
export {WHERE}="$w"
set -- "$m" --host "$l" -np {{all}} --bind-to none {{options}}
{{alone}}"$@" /bin/sh -c {{rank}}
e=$?
case $e in 126|127)e=1;;esac
exit $e
"""


def pods(campaign: MeterCampaign) -> ByVisits:
    """The launcher for Kubernetes nodes. Raises Unusable elsewhere."""
    if not is_loaded_by_pods(campaign.cluster):
        raise Unusable("the launcher pods is for clusters of Kubernetes; expected srun, mpirun or ssh")
    check_settings(campaign)
    return ByVisits(campaign, ranks_by_pods if campaign.meter.is_collective else measured_by_visits)


def ranks_by_pods(turn: PairMeasuring) -> Outcome:
    """Like two ends: the last node runs mpirun, the others start mpirun's daemon."""
    campaign = turn.campaign
    *others, last = turn.together
    environment = {**ENVIRONMENT, SOURCE: peer_program(), WORD: secrets.token_hex(16)}

    def start(_settings: MeterSettings, addresses: str, port: int) -> str:
        return shell_in_pod(turn, addresses, port)

    def read(_settings: MeterSettings, outputs: Sequence[Output]) -> Reading:
        reading = campaign.meter.read(campaign.settings, (merged(outputs[0], turn.run),))
        reading = typed(campaign, reading, launch_by_hand(campaign, (last, *others)), turn.together)
        return with_advice(reading, OWN_MPIRUN) if reading.failure is Failure.APART else reading

    meter = Meter(campaign.meter.name, read, server=lambda _, port: SERVE.format(port=port), client=start)
    return measured_by_visits(
        replace(turn, campaign=replace(campaign, meter=meter, settings=MeterSettings(environment=environment)))
    )


def peer_program() -> str:
    """The source of the program that starts commands on the other nodes of a pair or group."""
    return f"{joined(TRAVELS)}\nmain()\n"


def shell_in_pod(turn: PairMeasuring, addresses: str, port: int) -> str:
    """The script for the last node, which connects; `addresses` and `port` are those of the others."""
    nodes = tuple(turn.together)
    ranks = turn.campaign.ranks_per_node
    return START_BY_PODS.format(
        addresses=addresses,
        names=shlex.join(turn.where[node].name for node in nodes[:-1]),
        port=port,
        ranks=ranks,
        all=len(nodes) * ranks,
        options=_options(turn.campaign),
        alone="set --\n" if turn.campaign.meter.starts_ranks else "",
        rank=shlex.quote(rank_shell(turn.campaign, turn.run)),
    )
