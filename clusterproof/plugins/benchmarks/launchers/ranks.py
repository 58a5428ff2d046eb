"""A meter's ranks: the shell command of a rank, and how their outputs are merged."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import replace

from clusterproof.plugins.benchmarks.launchers import MeterCampaign
from clusterproof.plugins.benchmarks.launchers.cleanup import VARIABLE
from clusterproof.plugins.benchmarks.launchers.sent_bytes import WORD_BYTES
from clusterproof.plugins.benchmarks.meters import Output
from clusterproof.plugins.evidence.pairs import Reading

FOLDERS = "/usr/local/bin:/usr/bin:/bin:/opt/amazon/efa/bin:/opt/amazon/openmpi/bin:/opt/aws/neuron/bin"

# For any POSIX shell. One rank of each node prints the counters, before and after: in one write, so that no other
# output comes in between.
RANK = """PATH=${{PATH:+$PATH:}}{folders}
HOME=${{HOME:-$(getent passwd "$(id -u)" 2>/dev/null|cut -d: -f6)}}
HOME=${{HOME:-/}};export HOME PATH {variable}={run}{environment}
cp_sent() {{
[ "{brief}" ]&&return 0
[ "${{SLURM_LOCALID:-${{OMPI_COMM_WORLD_LOCAL_RANK:-${{MPI_LOCALRANKID:-0}}}}}}" = 0 ]||return 0
cd /sys/class/infiniband 2>/dev/null&&for f in */ports/*/hw_counters/tx_bytes */ports/*/counters/port_xmit_data;do
[ -r "$f" ]&&read -r v <"$f"&&echo "{run}:$1:$n:$f:$v."
done
sed -n "s/^ *\\([^: ]*\\): *\\([0-9]* *\\)\\{{8\\}}\\([0-9][0-9]*\\) .*/{run}:$1:$n:\\1:\\3./p" /proc/net/dev
}}
n=$(uname -n)
printf "\\n%s\\n" "$(cp_sent 0)"
(
{command}
)
e=$?
printf "\\n%s\\n" "$(cp_sent 1)"
exit $e
"""
_COUNTED = r"{run}:([01]):([^:\s]{{1,255}}):([^:\s]{{1,255}}):(\d{{1,20}})\."


def rank_shell(campaign: MeterCampaign, run: str) -> str:
    """The script of every rank."""
    assert campaign.meter.ranks
    settings = campaign.settings
    environment = "".join(f" {name}={shlex.quote(value)}" for name, value in settings.environment.items())
    return RANK.format(
        folders=FOLDERS,
        variable=VARIABLE,
        run=run,
        environment=environment,
        brief="brief" if settings.is_brief else "",
        command=campaign.meter.ranks(settings),
    )


def merged(output: Output, run: str) -> Output:
    """The ranks' own output, and what all nodes together have sent, by device."""
    looks: dict[tuple[str, str], dict[str, int]] = {}
    for when, node, counter, value in re.findall(_COUNTED.format(run=re.escape(run)), output.text):
        looks.setdefault((node, counter), {}).setdefault(when, int(value))
    sent: Counter[str] = Counter()
    for (_, counter), seen in sorted(looks.items()):
        name, factor = _device(counter)
        if len(seen) == 2 and seen["1"] >= seen["0"]:
            sent[name] += factor * (seen["1"] - seen["0"])
    efa = {name.removeprefix("efa:") for name in sent if name.startswith("efa:")}
    kept = {name: count for name, count in sent.items() if name.removeprefix("rdma:") not in efa and name != "net:lo"}
    text = re.sub(rf"\n?{_COUNTED.format(run=re.escape(run))}\n?", "\n", output.text)
    return replace(output, text=re.sub(r"\n{2,}", "\n", text), sent_bytes=kept)


def with_advice(reading: Reading, advice: str) -> Reading:
    """A failure with the launcher's advice."""
    return replace(reading, problem=f"{reading.problem}; {advice}")


def _device(counter: str) -> tuple[str, int]:
    name, _, rest = counter.partition("/")
    if not rest:
        return f"net:{name}", 1
    return (f"rdma:{name}", WORD_BYTES) if rest.endswith("port_xmit_data") else (f"efa:{name}", 1)
