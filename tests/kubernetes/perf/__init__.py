"""Nonexistent nodes with GPUs, images of benchmarks, and runs by pods that request these GPUs."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from clusterproof.plugins.benchmarks.launchers import MeterCampaign, PairOrGroup
from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.evidence.pairs import Pair, Reading
from clusterproof.plugins.suite.perf.pairs_planning import launcher_for
from clusterproof.plugins.transport import Answer, Limits
from clusterproof.plugins.transport.kubernetes.connection import PerfPods
from tests.benchmarks.launchers.launched import cluster_of, measured
from tests.kubernetes.programs import END, shell
from tests.testbed.compiled import program
from tests.testbed.kubernetes.images import (
    archive,
    open_mpi_files,
    program_files,
    python_files,
    shell_files,
    with_libraries,
)
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.load import SPEEDS, tool
from tests.testbed.ranks import ALL_REDUCE

NAMES = ("gpu001", "gpu002")
GROUP = (*NAMES, "gpu003")
GPUS = 8
GPU = "nvidia.com/gpu"
DEVICES = [f"nvidia{number}" for number in range(GPUS)]
TOOLS = "/opt/tools"
RANKS, GOOD, WRONG = "localhost/ranks:1", "localhost/good:1", "localhost/wrong:1"
PAIR = Pair(*NAMES)
PODS_OF_JOBS = "/api/v1/namespaces/default/pods"


def give_gpus(bed: Nodes) -> None:
    """Do what a device plugin does, as far as the scheduler sees it, and what a cloud controller does."""
    for machine in bed.machines.values():
        bed.plane.patch(f"{machine.path}/status", {"status": {"capacity": {GPU: str(GPUS)}}})
        labels = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
        bed.plane.patch(machine.path, {"metadata": {"labels": labels}, "spec": {"taints": None}})
    wait_until(lambda: all(free(bed, name) for name in bed.machines), "reported by the kubelets")


def free(bed: Nodes, name: str) -> bool:
    return bool(bed.plane.call("GET", bed.machines[name].path)["status"]["allocatable"].get(GPU) == str(GPUS))


def give_images(bed: Nodes) -> None:
    """Install a real MPI with ranks that sum, and the nccl-tests stand-in on one node: a good one and a faulty one."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = Path(folder, "all_reduce_perf")
        ranks.write_bytes(program(Path(__file__).parents[2] / "testbed/tools/all_reduce.c", compiler="mpicc"))
        shared = {**python_files(), **shell_files()}
        mpi = {
            **open_mpi_files(),
            **program_files("iperf3", *(["fi_pingpong"] if shutil.which("fi_pingpong") else [])),
            **with_libraries([ranks]),
            ALL_REDUCE: ranks,
        }
        alone = Path(folder, "tool")
        alone.write_text(tool("all_reduce_perf"))
        images = [archive({**shared, **mpi}, [RANKS])]
        for name, output in ((GOOD, ""), (WRONG, "all_reduce wrong 3\n")):
            speeds = Path(folder, name.replace("/", "-"))
            speeds.write_text(output)
            images.append(archive({**shared, SPEEDS: speeds, f"{TOOLS}/all_reduce_perf": alone}, [name]))
        for machine in bed.machines.values():
            for image in images if machine.name == NAMES[0] else images[:1]:
                machine.add_image(image)


@contextlib.contextmanager
def job(bed: Nodes, node: str, gpus: int) -> Iterator[str]:
    """Another user's pod that holds GPUs of a node until the block ends."""
    requests = {GPU: str(gpus)}
    container = {"name": "train", "image": RANKS, "imagePullPolicy": "Never", "command": ["/usr/bin/sleep", "600"]}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 0,
        "containers": [{**container, "resources": {"limits": requests}}],
    }
    bed.plane.call("POST", PODS_OF_JOBS, {"metadata": {"name": "train-0"}, "spec": spec})
    path = f"{PODS_OF_JOBS}/train-0"
    try:
        wait_until(lambda: bed.plane.call("GET", path)["status"].get("phase") == "Running", "running")
        yield "default/train-0"
    finally:
        bed.plane.call("DELETE", f"{path}?gracePeriodSeconds=0")
        wait_until(lambda: not bed.plane.items(PODS_OF_JOBS), "gone")


def limits(answer_s: float = 60, connect_s: float = 60, **settings: str) -> Limits:
    """Generous limits, with the image of ranks."""
    return Limits(connect_s=connect_s, answer_s=answer_s, settings={"k8s_perf_image": RANKS, **settings})


def run(script: str, *names: str, pods: PerfPods | None = None, **options: float | str) -> Mapping[str, Answer]:
    """Run a /bin/sh script on each node; returns the output."""
    answers: dict[str, Answer] = {}
    targets = [Target(name) for name in names or NAMES[:1]]
    timeouts = limits(**options)  # type: ignore[arg-type]
    (pods or PerfPods()).run(
        targets, shell(script), timeouts, lambda target, answer: answers.update({target.name: answer})
    )
    return answers


def output_of(answer: Answer) -> str:
    """The output without its end marker."""
    return answer.output.decode().replace(f"{END}\n", "")


def campaign(meter: Meter, run_s: float = 60.0, by: str = "kubernetes", **settings: int) -> MeterCampaign:
    cluster = cluster_of(dict.fromkeys(GROUP, ""), by)
    return MeterCampaign(meter, MeterSettings(**settings), cluster, limits(), run_s, connection=PerfPods())  # type: ignore[arg-type]


def measurement(
    meter: Meter, by: str = "kubernetes", together: PairOrGroup = PAIR, run_s: float = 60.0, **settings: int
) -> Reading:
    with launcher_for(campaign(meter, run_s, by, **settings)) as launcher:
        return measured(launcher, [together])[str(together)]
