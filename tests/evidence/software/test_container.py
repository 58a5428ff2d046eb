"""What a job gets in a runc container: devices that a cgroup denies, libraries mounted from the node."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.agent.reading import Broke, Node
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.software.collect_container import MAX_DEVICES, read
from tests.builders.evaluated import expect, result_of
from tests.builders.probed import probe
from tests.builders.runs import Runs
from tests.testbed import software
from tests.testbed.base import system
from tests.testbed.compiled import ABSENT, NEEDED, of_absent_library, of_newer_glibc, shared_library
from tests.testbed.needs import needs_runc
from tests.testbed.software import library

pytestmark = needs_runc

DEVICES, LOADED = "software.container_devices", "software.container_libraries"
COLLECTORS = ("boot", "container", "pci", "rdma", "versions", "nvml")
LOADED_DRIVER, DRIVER_BEFORE = "580.126.09", "535.54.03"
LIBRARIES = "/opt/lib"  # first in this container's library search path
FUSE = (10, 229)  # a device of this machine that opens, in place of a GPU
FORGING = Path(software.__file__).with_name("forging.c")
ALL_OF_DRIVER = ("libcuda.so.1", "libnvidia-ml.so.1")


@dataclass
class Container:
    """A runc container with one GPU, before start: `in_image` and `mounted` are libraries by file name."""

    folder: Path
    in_image: dict[str, bytes] = field(default_factory=dict)
    mounted: dict[str, bytes] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"clusterproof-{uuid4().hex[:12]}")

    @property
    def entered(self) -> str:
        """The command that runs another command in it."""
        return f"runc --root {shlex.quote(str(self.folder / 'state'))} exec {self.name}"

    @property
    def devices(self) -> Path:
        """Its device cgroup."""
        return Path("/sys/fs/cgroup/devices", self.name)

    def start(self) -> None:
        root = self.folder / "root"
        driver = self.folder / "sys/module/nvidia/version"
        for path in (root / LIBRARIES[1:], self.folder / "mounted", driver.parent, self.folder / "sys/bus/pci/devices"):
            path.mkdir(parents=True)
        driver.write_text(f"{LOADED_DRIVER}\n")
        for name, content in self.in_image.items():
            (root / LIBRARIES[1:] / name).write_bytes(content)
        for name, content in self.mounted.items():
            (self.folder / "mounted" / name).write_bytes(content)
        for name in ("bin", "sbin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        (self.folder / "config.json").write_text(json.dumps(self._config()))
        state = ("--root", str(self.folder / "state"))
        command = ["runc", *state, "run", "--detach", "--bundle", str(self.folder), self.name]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=600)

    def end(self) -> None:
        command = ["runc", "--root", str(self.folder / "state"), "delete", "--force", self.name]
        subprocess.run(command, check=False, capture_output=True, timeout=600)

    def _config(self) -> Mapping[str, object]:
        major, minor = FUSE
        gpu = {"type": "c", "major": major, "minor": minor}
        bound = {"/usr": system() / "usr", "/etc": system() / "etc", "/sys": self.folder / "sys"}
        bound |= {f"{LIBRARIES}/{name}": self.folder / "mounted" / name for name in self.mounted}
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            *({"destination": at, "type": "bind", "source": str(of), "options": ["bind"]} for at, of in bound.items()),
        ]
        files = [f"/dev/{name}" for name in ("nvidia0", "nvidiactl", "nvidia-uvm")]
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": ["/usr/bin/sleep", "infinity"],
                "env": ["PATH=/usr/sbin:/usr/bin", f"LD_LIBRARY_PATH={LIBRARIES}"],
                "cwd": "/",
                "capabilities": {kind: ["CAP_SETUID", "CAP_SETGID"] for kind in ("bounding", "effective", "permitted")},
            },
            "root": {"path": "root"},
            "mounts": mounts,
            "linux": {
                "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
                "cgroupsPath": f"/{self.name}",
                "devices": [{**gpu, "path": path, "fileMode": 0o666} for path in files],
                "resources": {
                    "devices": [{"allow": False, "access": "rwm"}, {**gpu, "allow": True, "access": "rwm"}],
                },
            },
        }


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    """A container with the driver's libraries, until the test ends."""
    made = Container(tmp_path, mounted={name: library(name) for name in ALL_OF_DRIVER})
    yield made
    made.end()


def says(container: Container, check: str, verdict: Verdict, message: str = "") -> None:
    """A check's result on the probe's report from inside."""
    evidence = probe(COLLECTORS, ProbeOptions(collector_s=60.0, in_container=container.entered))
    expect(result_of(check, evidence, occasion="job"), verdict, message)


def test_devices_that_systemd_takes_away_again_are_the_runtimes_loss(container: Container) -> None:
    container.start()
    says(container, DEVICES, Verdict.PASS)
    major, minor = FUSE
    (container.devices / "devices.deny").write_text(f"c {major}:{minor} rwm")  # as a daemon-reload does
    says(
        container, DEVICES, Verdict.FAIL, "runtime: the device cgroup refuses /dev/nvidia-uvm, /dev/nvidiactl; expected"
    )
    says(container, DEVICES, Verdict.FAIL, "runtime: the device cgroup refuses /dev/nvidia0; expected")


def test_a_driver_library_of_before_the_upgrade_is_the_runtimes(container: Container) -> None:
    container.mounted[f"libcuda.so.{DRIVER_BEFORE}"] = container.mounted.pop("libcuda.so.1")
    container.start()
    (container.folder / "root" / LIBRARIES[1:] / "libcuda.so.1").symlink_to(f"libcuda.so.{DRIVER_BEFORE}")
    expected = f"runtime: libcuda.so.1 is of driver {DRIVER_BEFORE} ({LIBRARIES}/libcuda.so.{DRIVER_BEFORE}); expected"
    says(container, LOADED, Verdict.FAIL, f"{expected} {LOADED_DRIVER}")


def test_a_library_that_loads_passes_and_one_of_the_image_that_is_cut_is_the_images(container: Container) -> None:
    container.start()
    says(container, LOADED, Verdict.PASS)
    (container.folder / "root" / LIBRARIES[1:] / "libnccl.so.2").write_bytes(library()[:500])
    says(container, LOADED, Verdict.FAIL, "image: libnccl.so.2 does not load")


def test_a_library_that_root_alone_may_read_is_nobodys_fault(container: Container) -> None:
    container.in_image["libnccl.so.2"] = library()
    container.start()
    (container.folder / "root" / LIBRARIES[1:] / "libnccl.so.2").chmod(0o600)
    says(container, LOADED, Verdict.INCOMPLETE, "libnccl.so.2 was not loaded: nobody")


def test_a_library_writes_to_nothing_but_what_is_asked_of_it(container: Container) -> None:
    container.in_image["libnccl.so.2"] = shared_library(FORGING, "libnccl.so.2")
    container.start()
    says(container, DEVICES, Verdict.PASS)
    says(container, LOADED, Verdict.FAIL, "image: libnccl.so.2 does not load: libnccl.so.2 ends its process")


HANGS = {
    "waits": "for (;;) pause();",
    "waits whatever the signal": "sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, 0); for (;;) pause();",
    "leaves one that waits": "if (!fork()) for (;;) pause(); for (;;) pause();",
}


def compiled(folder: Path, begin: str) -> bytes:
    """A library that runs this as it is loaded."""
    source = folder / "library.c"
    head = "#include <signal.h>\n#include <unistd.h>\n"
    source.write_text(f"{head}__attribute__((constructor)) static void begin(void) {{ {begin} }}\n")
    return shared_library(source, "libnccl.so.2")


def test_a_library_that_leaves_a_process_behind_is_waited_for_no_longer_than_its_loading(
    container: Container, tmp_path: Path
) -> None:
    container.in_image["libnccl.so.2"] = compiled(tmp_path, "if (!fork()) for (;;) pause();")
    container.start()
    says(container, LOADED, Verdict.PASS)


@pytest.mark.parametrize("hangs", HANGS.values(), ids=HANGS)
def test_a_library_that_never_comes_back_hides_neither_devices_nor_other_libraries(
    container: Container, tmp_path: Path, hangs: str
) -> None:
    container.in_image["libnccl.so.2"] = compiled(tmp_path, hangs)
    container.mounted[f"libcuda.so.{DRIVER_BEFORE}"] = container.mounted.pop("libcuda.so.1")
    container.start()
    (container.folder / "root" / LIBRARIES[1:] / "libcuda.so.1").symlink_to(f"libcuda.so.{DRIVER_BEFORE}")
    evidence = probe(COLLECTORS, ProbeOptions(in_container=container.entered))
    expect(result_of(DEVICES, evidence, occasion="job"), Verdict.PASS, "")
    result = result_of(LOADED, evidence, occasion="job")
    expect(result, Verdict.FAIL, f"runtime: libcuda.so.1 is of driver {DRIVER_BEFORE}")
    assert "libnccl.so.2 was not loaded: its loading did not end" in result.message


def test_a_plug_in_of_the_node_that_needs_a_newer_glibc_is_the_runtimes(container: Container) -> None:
    container.mounted["libnccl-net.so"] = of_newer_glibc()
    container.start()
    says(container, LOADED, Verdict.FAIL, "runtime: libnccl-net.so does not load: ")
    says(container, LOADED, Verdict.FAIL, f"version `{NEEDED}' not found")


@pytest.mark.parametrize(
    ("plug_in", "message"),
    [
        (of_absent_library, f"libnccl-net.so does not load: {ABSENT}"),
        (lambda: library()[:500], "/opt/lib/libnccl-net.so"),
    ],
    ids=["one that needs what the image lacks", "one that is cut"],
)
def test_a_plug_in_of_the_node_that_does_not_load_is_not_the_images(
    container: Container, plug_in: Callable[[], bytes], message: str
) -> None:
    container.mounted["libnccl-net.so"] = plug_in()
    container.start()
    says(container, LOADED, Verdict.FAIL, "runtime: libnccl-net.so does not load: ")
    says(container, LOADED, Verdict.FAIL, message)


def test_a_run_asks_in_the_container_that_the_command_line_begins(container: Container, runs: Runs) -> None:
    container.start()
    arguments = ("--cluster", "local", "-m", "job", "-k", "container", "--in-container", container.entered)
    limits = ("--probe-timeout", "60", "--answer-timeout", "600")
    runs.run(*arguments, *limits, "--results", str(runs.results_file), "--pyargs", "clusterproof.checks")
    assert {result.check: result.verdict for result in runs.results} == {
        DEVICES: Verdict.PASS,
        LOADED: Verdict.PASS,
    }


@pytest.mark.parametrize(
    ("listed", "gpus"),
    [("0,1", 2), ("GPU-aaaa,GPU-bbbb", 2), ("0,0,1", 2), ("all", None), ("void", None), ("0:0,0:1", None), ("", None)],
)
def test_a_job_is_due_each_gpu_that_is_listed_once(
    listed: str, gpus: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", listed)
    requested = cast("dict[str, Any]", read(Node()))["gpus_asked"]
    assert requested.get("NVIDIA_VISIBLE_DEVICES") == gpus


@pytest.mark.parametrize(
    ("visible", "first"),
    [
        ("0,1", 0),
        ("4,5", 4),
        ("", -1),
        ("-1", -1),
        ("none", -1),
        ("GPU-aaaa", None),
        ("MIG-aaaa", None),
        ("NoDevFiles", None),
    ],
)
def test_which_gpu_cuda_begins_with_is_read_where_it_has_a_number(
    visible: str, first: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert cast("dict[str, Any]", read(Node()))["cuda_begins_with"] == first


def test_more_device_files_than_are_opened_are_said() -> None:
    channels = [f"channel{number}" for number in range(MAX_DEVICES + 1)]
    node: Any = SimpleNamespace(root="", names=lambda folder: channels if "imex" in folder else [])
    with pytest.raises(Broke, match=f"{MAX_DEVICES + 1} device files; expected {MAX_DEVICES} at most"):
        read(node)
