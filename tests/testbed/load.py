"""What loads a healthy node: programs with the output of real ones, and a Python with PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clusterproof.plugins.benchmarks.load.options import LoadOptions
from tests.testbed.compiled import program
from tests.testbed.exact import EXACT, exact
from tests.testbed.faults import with_file, without_file
from tests.testbed.healthy import healthy_p5
from tests.testbed.image import Content, File, Folder, Link, NodeImage
from tests.testbed.neuron import healthy_trn2
from tests.testbed.outputs import dcgm_json

HERE = Path(__file__).parent
SPEEDS = "/usr/lib/testbed/speeds"
DCGM = "/usr/lib/testbed/dcgm.json"
SCRATCH = "/fsx/scratch"
TORCH = "/opt/pytorch"
NCCL_TESTS = "/opt/nccl-tests/build/all_reduce_perf"
EFA_BIN = "/opt/amazon/efa/bin"
OPTIONS = LoadOptions(fs_folder=SCRATCH, fs_mib=64, stress_s=1, seconds={"dcgm_diag": 18.0})  # kills 3 of them


def of_gpus() -> dict[str, str]:
    """The programs of a node with GPUs, by path."""
    return {"dcgmi": tool("dcgmi"), "nvbandwidth": tool("nvbandwidth"), NCCL_TESTS: tool("all_reduce_perf")}


def of_efa() -> dict[str, Content]:
    """The program of a node with EFA; compiled, since it runs twice for each of 32 devices."""
    return {f"{EFA_BIN}/fi_pingpong": File(program(HERE / "tools" / "fi_pingpong.c"), 0o755)}


def of_any_node() -> dict[str, str]:
    """The programs of any node."""
    return {name: tool(name) for name in ("fio", "stress-ng")}


def tool(name: str) -> str:
    """The text of a fake program."""
    return (HERE / "tools" / name).read_text()


def torch_files() -> dict[str, Content]:
    """An environment with a PyTorch, for whichever version of Python the node has."""
    files: dict[str, Content] = {
        f"{TORCH}/bin/python3": Link("/usr/bin/python3"),
        f"{TORCH}/pyvenv.cfg": "home = /usr/bin\n",
        f"{TORCH}/lib/python3/site-packages/torch/__init__.py": (HERE / "torch" / "__init__.py").read_text(),
        EXACT: exact(),
    }
    return files | {f"{TORCH}/lib/python3.{minor}": Link("python3") for minor in range(8, 16)}


def loadable(image: NodeImage, tools: dict[str, str], files: dict[str, Content]) -> NodeImage:
    """A node with these programs and files, a writable folder, and normal speed."""
    common: dict[str, Content] = {SPEEDS: "", SCRATCH: Folder(0o777)}
    return replace(image, tools=image.tools | of_any_node() | tools, files=image.files | common | files)


def gpu_node(image: NodeImage) -> NodeImage:
    """A node with GPUs and EFA that can be loaded."""
    return loadable(image, of_gpus(), of_efa() | torch_files() | {DCGM: dcgm_json()})


def neuron_node(image: NodeImage) -> NodeImage:
    """A node with Trainium and EFA that can be loaded."""
    return loadable(image, {"/opt/aws/neuron/bin/nccom-test": tool("nccom-test")}, of_efa() | torch_files())


def with_speed(image: NodeImage, *lines: str) -> NodeImage:
    """Set the hardware's speed with these lines."""
    speeds = image.files[SPEEDS]
    assert isinstance(speeds, str)
    return with_file(image, SPEEDS, speeds + "".join(f"{line}\n" for line in lines))


def without_torch(image: NodeImage) -> NodeImage:
    """Remove PyTorch from every Python."""
    return without_file(image, TORCH)


def loadable_p5() -> NodeImage:
    """A p5.48xlarge with all programs that measure GPUs, EFA and files."""
    return gpu_node(healthy_p5())


def loadable_trn2() -> NodeImage:
    """A trn2.48xlarge likewise."""
    return neuron_node(healthy_trn2())


LOADABLE = (loadable_p5, loadable_trn2)
