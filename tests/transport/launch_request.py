"""The request to a submit host, to start a command on nodes; and a stand-in for the Slurm that it finds there."""

from __future__ import annotations

from pathlib import Path

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Limits, Program, connection_for
from clusterproof.plugins.transport.srun.places import Request

REQUEST: Request = {
    "name": "clusterproof-cp1",
    "names": [],
    "partition": "",
    "job": "",
    "wait_s": 60.0,
    "minutes": 2,
    "whole_s": 600.0,
    "end": ":end:",
    "most_bytes": 2**20,
    "options": [],
    "mark": "cp1:node:",
    "command": "true",
}

SCONTROL = """#!/bin/sh
case "$*" in
    *config*) echo "ClusterName = c" ;;
    *) for name in a b c; do echo "NodeName=$name CPUAlloc=0 CPUTot=4 Gres=(null) State=IDLE Partitions=gpu"; done ;;
esac
"""


class Stand:
    """Slurm's commands in a folder first on PATH; each case writes `srun`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command("scontrol", SCONTROL)
        self.command("squeue", "#!/bin/sh\necho Resources\n")
        self.command("scancel", f"#!/bin/sh\necho $* >>{folder}/cancelled\n")

    def command(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def srun(self, body: str) -> None:
        """`$mark` precedes a node's name; `end` ends its answer; `on NODE TASK` is srun's own message."""
        find = 'for last; do :; done; mark=${last#echo }; mark=${mark%%\\$*}; end() { echo "$1: cp:end:1:1:1."; }'
        find += '; on() { echo "srun: launching StepId=7.0 on host $1, 1 tasks: $2" >&2; }'
        self.command("srun", f'#!/bin/sh\necho "$*" >>{self.folder}/called\n{find}\n{body}\n')

    def answers(self, *names: str, **settings: str) -> dict[str, tuple[Unreached | None, str, bytes]]:
        by_name: dict[str, tuple[Unreached | None, str, bytes]] = {}
        limits = Limits(answer_s=60.0, settings={"slurm_wait": "60", **settings})
        connection_for("srun").run(
            [Target(name) for name in names],
            Program("true"),
            limits,
            lambda target, answer: by_name.__setitem__(target.name, (answer.unreached, answer.detail, answer.output)),
        )
        return by_name
