"""A simulated controller of one node, for tests that determine when Slurm acts."""

from __future__ import annotations

from tests.testbed.image import NodeImage
from tests.testbed.node import Node, with_tool

FOLDER = "run/controller"
NAME = "gpu001"

SCONTROL = f"""#!/bin/sh
at=/{FOLDER}
mkdir -p $at
exec 9>>$at/lock && flock 9 # one at a time, as slurmctld answers
case $1 in
    show) printf 'NodeName=%s\\n   State=%s\\n   Partitions=gpu \\n' $3 "$(cat $at/state 2>/dev/null || echo IDLE)"
        [ -s $at/reason ] && printf '   Reason=%s\\n' "$(cat $at/reason)" ;;
    update) echo "$*" >>$at/updates
        case $3 in
            State=DRAIN) echo IDLE+DRAIN >$at/state
                echo "${{4#Reason=}} [root@$(date +%FT%T.%N)]" >$at/reason ;;
            State=RESUME) echo IDLE >$at/state
                KEEPS || rm -f $at/reason ;;
        esac ;;
esac
exit 0
"""
SINFO = f"""#!/bin/sh
cd /{FOLDER}
grep -q DRAIN state && state=drained
echo "{NAME}|${{state:-idle}}|$(date +%s)|$(cat reason)"
echo "gpu002|idle|Unknown|none"
"""
SQUEUE = f"#!/bin/sh\ncat /{FOLDER}/jobs 2>/dev/null\nexit 0\n"


def with_controller(image: NodeImage, *, keeps_reason: bool = False) -> NodeImage:
    """The image with Slurm's commands; a kept reason is shown after RESUME, as since 24.11."""
    text = SCONTROL.replace("KEEPS", "true" if keeps_reason else "false")
    return with_tool(with_tool(with_tool(image, "scontrol", text), "sinfo", SINFO), "squeue", SQUEUE)


def drained_by_slurm(node: Node, why: str) -> None:
    """Drain the node as slurmctld does after a failed script: it leaves an existing reason alone."""
    at = node.root / FOLDER
    at.mkdir(parents=True, exist_ok=True)
    if not reason(node):
        (at / "reason").write_text(f"{why} [root@2026-03-01T08:00:00]\n")
    (at / "state").write_text("IDLE+DRAIN\n")


def has_jobs(node: Node, *jobs: str) -> None:
    """Set the node's jobs."""
    at = node.root / FOLDER
    at.mkdir(parents=True, exist_ok=True)
    (at / "jobs").write_text("\n".join(jobs))


def state(node: Node) -> str:
    """The node's state."""
    file = node.root / FOLDER / "state"
    return file.read_text().strip() if file.exists() else "IDLE"


def reason(node: Node) -> str:
    """The node's reason, whatever its state."""
    file = node.root / FOLDER / "reason"
    return file.read_text().strip() if file.exists() else ""
