"""What a job gets in a podman container: device rules of cgroup 2, and devices of a CDI specification."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.probed import probe
from tests.testbed.base import system
from tests.testbed.needs import needs_podman
from tests.testbed.software import library

pytestmark = needs_podman

DEVICES, LOADED = "software.container_devices", "software.container_libraries"
COLLECTORS = ("boot", "container", "pci", "rdma", "versions", "nvml")
LOADED_DRIVER, DRIVER_BEFORE = "580.126.09", "535.54.03"
LIBRARIES = "/opt/lib"  # first in this container's library search path
FILES = [f"/dev/{name}" for name in ("nvidia0", "nvidiactl", "nvidia-uvm")]
FUSE = "/dev/fuse"  # a device of this machine that opens, in place of a GPU
ENTER = """set -e
mount --make-rprivate /
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs none /mnt
mount -t overlay -o lowerdir={etc}:/etc none /etc
exec podman --root /mnt/store --runroot /mnt/run --storage-driver vfs --cgroup-manager cgroupfs \\
  --events-backend none --runtime runc run --rm -i --network none --pids-limit 0 --ulimit nofile=1024:1024 \\
  --ulimit nproc=1024:1024 -e LD_LIBRARY_PATH={libraries} -v {folder}/sys:/sys:ro {options} \\
  -v {system}/usr:/usr:ro --rootfs {folder}/root "$@"
"""


class Podman:
    """Podman containers, each started by the command `entered`, with cgroup 2 and a separate CDI folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in (
            "root/opt/lib",
            "root/usr",
            "sys/module/nvidia",
            "sys/bus/pci/devices",
            "sys/fs/cgroup",
            "etc/cdi",
            "lib",
        ):
            (folder / path).mkdir(parents=True)
        for name in ("bin", "sbin", "lib", "lib64"):
            (folder / "root" / name).symlink_to(f"usr/{name}")
        (folder / "sys/module/nvidia/version").write_text(f"{LOADED_DRIVER}\n")

    def entered(self, *options: str) -> str:
        """The command that starts a container with these `podman run` options."""
        fields = {"etc": self.folder / "etc", "folder": self.folder, "libraries": LIBRARIES, "system": system()}
        (self.folder / "enter.sh").write_text(ENTER.format(**fields, options=" ".join(options)))
        return f"unshare --mount sh {self.folder}/enter.sh"

    def of_driver(self, driver: str) -> dict[str, Path]:
        """A driver's libraries of this version on the node: paths there by paths in a container."""
        libraries = {}
        for name in ("libcuda.so", "libnvidia-ml.so"):
            path = self.folder / "lib" / f"{name}.{driver}"
            path.write_bytes(library(f"{name}.1"))
            libraries[f"{LIBRARIES}/{path.name}"] = path
        return libraries

    def specify(self, libraries: dict[str, Path]) -> None:
        """Write one GPU's CDI specification with these libraries."""
        mounts = [
            {"hostPath": str(path), "containerPath": at, "options": ["ro", "bind"]} for at, path in libraries.items()
        ]
        for at in libraries:  # NVIDIA's hook creates these links
            soname = self.folder / f"root{at.partition('.so.')[0]}.so.1"
            soname.unlink(missing_ok=True)
            soname.symlink_to(Path(at).name)
        nodes = [{"path": path, "hostPath": FUSE, "permissions": "rw"} for path in FILES]
        spec = {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [{"name": "all", "containerEdits": {"deviceNodes": nodes}}],
            "containerEdits": {"mounts": mounts},
        }
        (self.folder / "etc/cdi/nvidia.json").write_text(json.dumps(spec))


@pytest.fixture
def podman(tmp_path: Path) -> Podman:
    """Podman without a CDI specification."""
    return Podman(tmp_path)


def says(command: str, check: str, verdict: Verdict, message: str = "") -> None:
    """A check's result on the probe's report from a container that this command starts."""
    evidence = probe(COLLECTORS, ProbeOptions(collector_s=60.0, in_container=command))
    expect(result_of(check, evidence, occasion="job"), verdict, message)


def test_devices_that_are_given_open_and_one_that_cgroup_2_lets_be_read_alone_is_the_runtimes(podman: Podman) -> None:
    given = [f"--device {FUSE}:{path}" for path in FILES]
    mounted = [
        f"-v {path}:{LIBRARIES}/{path.name.partition('.so.')[0]}.so.1" for path in podman.of_driver("1").values()
    ]
    says(podman.entered(*given, *mounted), DEVICES, Verdict.PASS)
    read_alone = [f"{device}:r" for device in given]
    says(
        podman.entered(*read_alone, *mounted), DEVICES, Verdict.FAIL, f"the device cgroup refuses {FILES[0]}; expected"
    )


def test_a_cdi_specification_of_before_the_drivers_upgrade_is_the_runtimes(podman: Podman) -> None:
    podman.specify(podman.of_driver(LOADED_DRIVER))
    command = podman.entered("--device nvidia.com/gpu=all")
    says(command, DEVICES, Verdict.PASS)
    says(command, LOADED, Verdict.PASS)
    podman.specify(podman.of_driver(DRIVER_BEFORE))
    says(command, LOADED, Verdict.FAIL, f"runtime: libcuda.so.1 is of driver {DRIVER_BEFORE}")
