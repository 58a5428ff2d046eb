"""Makes this machine a node: a kubelet with a containerd, both with cgroups and folders of the testbed.

Pods share this machine's network, so no CNI is needed; its address is set as a cloud controller would set it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.testbed.kubernetes.control_plane import ControlPlane, program
from tests.testbed.kubernetes.images import archive
from tests.testbed.kubernetes.processes import Running, running, started_again, wait_until
from tests.transport.loopback import free_port

CGROUPS = Path("/sys/fs/cgroup")
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
LOCK = Path(tempfile.gettempdir(), "clusterproof-kubelet.lock")
MAX_PODS = 4
SANDBOX = "localhost/clusterproof/pause:1"
KUBE_PROXY = "registry.k8s.io/kube-proxy:v1.34.4"
NO_NETWORK = {"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "loopback"}]}
CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/ttrpc.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  disable_apparmor = true
  restrict_oom_score_adj = true # not everybody who is root here may lower it
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{folder}/cni"
    bin_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    base_runtime_spec = "{folder}/spec.json"
"""


@dataclass
class Machine:
    """A node that is Ready."""

    name: str
    folder: Path
    plane: ControlPlane
    kubelet_words: list[str | Path]
    kubelet_port: int
    kubelet: Running | None = None

    @property
    def path(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    def ready(self) -> str:
        """True, False or Unknown, as Kubernetes writes it; empty for a node that does not exist yet."""
        nodes = [node for node in self.plane.items("/api/v1/nodes") if node["metadata"]["name"] == self.name]
        conditions = nodes[0]["status"].get("conditions", ()) if nodes else ()
        return next((str(condition["status"]) for condition in conditions if condition["type"] == "Ready"), "")

    def set_address(self, address: str) -> None:
        """Set the node's address, as a cloud controller does."""
        addresses = [{"type": "Hostname", "address": self.name}, {"type": "InternalIP", "address": address}]
        self.plane.patch(f"{self.path}/status", {"status": {"addresses": addresses}})

    def images(self) -> list[str]:
        """The images that the kubelet reports."""
        status = self.plane.call("GET", self.path)["status"]
        return [name for image in status.get("images") or () for name in image["names"]]

    def add_image(self, data: bytes) -> None:
        """Add an image, as if another pod had pulled it earlier."""
        (self.folder / "image.tar").write_bytes(data)
        assert _ctr(self.folder, "images", "import", str(self.folder / "image.tar")).returncode == 0

    @contextlib.contextmanager
    def without_kubelet(self) -> Iterator[None]:
        """Stop the kubelet until the block ends."""
        assert self.kubelet
        self.kubelet.stop(signal.SIGKILL)
        try:
            yield
        finally:
            stopped = self.kubelet
            self.kubelet = _listening(lambda: started_again(stopped, self.kubelet_words))
            wait_until(lambda: self.ready() == "True", "ready again", self.kubelet)

    @contextlib.contextmanager
    def configured(self, *flags: str, **settings: object) -> Iterator[int]:
        """Run the kubelet with these YAML settings and flags until the block ends; yields its process id."""
        file = self.folder / "kubelet.json"
        before = file.read_text()
        file.write_text(yaml.safe_dump({**json.loads(before), **settings}))
        try:
            yield self._begin_anew([*self.kubelet_words, *flags])
        finally:
            file.write_text(before)
            self._begin_anew(self.kubelet_words)

    def _begin_anew(self, command: list[str | Path]) -> int:
        """Stop the kubelet and start a new one without its state."""
        assert self.kubelet
        self.kubelet.stop(signal.SIGKILL)
        states = [self.folder / "kubelet" / f"{kind}_manager_state" for kind in ("cpu", "memory")]
        for state in states:
            state.unlink(missing_ok=True)
        stopped = self.kubelet
        self.kubelet = _listening(lambda: started_again(stopped, command))
        wait_until(lambda: all(state.exists() for state in states), "keeping its state", self.kubelet)
        wait_until(lambda: self.ready() == "True", "ready again", self.kubelet)
        return self.kubelet.process.pid


@contextlib.contextmanager
def machine(
    plane: ControlPlane,
    folder: Path,
    name: str = "gpu001",
    address: str = "127.0.0.1",
    host: Sequence[str] = (),
    devices: Sequence[str] = (),
) -> Iterator[Machine]:
    """Start containerd and a kubelet, and wait until the node is Ready; nothing of them remains.

    `host` is a command that enters the host with this address; empty means this machine. Every container gets the
    `devices`, as a runtime passes GPUs: device files with nothing behind them.
    """
    port = free_port()
    cgroup = cgroup_of(port)
    (folder / "cni").mkdir()
    (folder / "cni" / "10-none.conflist").write_text(json.dumps(NO_NETWORK))
    (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder, sandbox=SANDBOX))
    (folder / "spec.json").write_text(json.dumps(_spec(devices)))
    (folder / "images.tar").write_bytes(archive({"/pause": program("pause")}, [SANDBOX, KUBE_PROXY]))
    (folder / "kubelet.json").write_text(json.dumps(_kubelet(folder, cgroup, port, address)))
    command: list[str | Path] = [*host, program("kubelet"), f"--config={folder}/kubelet.json"]
    command += [f"--kubeconfig={plane.kubeconfig()}", f"--root-dir={folder}/kubelet"]
    command += [f"--hostname-override={name}", "--cloud-provider=external"]
    node = Machine(name, folder, plane, command, port)
    with contextlib.ExitStack() as stack:
        stack.callback(_unmount, folder)
        stack.callback(_remove_cgroup, cgroup)
        _make_cgroup(cgroup)
        log = folder / "containerd.log"
        containerd = stack.enter_context(running(log, [*host, "containerd", "--config", folder / "containerd.toml"]))
        wait_until(lambda: _ctr(folder, "version").returncode == 0, "up", containerd)
        imported = _ctr(folder, "images", "import", str(folder / "images.tar"))
        assert imported.returncode == 0, imported.stderr
        stack.callback(_end_containers, folder)
        kubelet = running(folder / "kubelet.log", command)
        node.kubelet = _listening(lambda: stack.enter_context(kubelet))
        stack.callback(lambda: node.kubelet and node.kubelet.stop())  # the one running by then
        wait_until(lambda: node.ready() == "True", "ready", node.kubelet)
        node.set_address(address)
        wait_until(lambda: KUBE_PROXY in node.images(), "listing its images", node.kubelet)
        yield node


def _listening(start: Callable[[], Running]) -> Running:
    """Start a kubelet and wait until it listens for device plugins.

    All kubelets of a machine use one path for that: each removes it and then binds it, so they start one by one.
    """
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = _bound()
        kubelet = start()
        wait_until(lambda: _bound() not in (before, None), "listening for device plugins", kubelet)
    return kubelet


def _bound() -> tuple[int, int] | None:
    try:
        status = DEVICE_PLUGINS.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def cgroup_of(port: int) -> str:
    """The cgroup of the node whose kubelet listens there; parallel tests have their own nodes."""
    return f"clusterproof-test-{port}"


def _kubelet(folder: Path, cgroup: str, port: int, address: str) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": port,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%"},
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "podLogsDir": f"{folder}/logs",
        "resolvConf": "",
        "containerLogMaxSize": "1Mi",
        "containerLogMonitorInterval": "3s",
        "maxPods": MAX_PODS,
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "5s",
    }


def _spec(devices: Sequence[str]) -> object:
    """The spec that runc gets for every container, before the kubelet's additions."""
    spec = json.loads(subprocess.check_output(["ctr", "oci", "spec"]))
    null = {"type": "c", "major": 1, "minor": 3, "fileMode": 0o666, "uid": 0, "gid": 0}
    spec["linux"]["devices"] = [{"path": f"/dev/{name}", **null} for name in devices]
    return spec


def _ctr(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["ctr", "-a", f"{folder}/containerd.sock", "-n", "k8s.io", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def _end_containers(folder: Path) -> None:
    for task in _ctr(folder, "tasks", "ls", "-q").stdout.split():
        _ctr(folder, "tasks", "rm", "--force", task)


def _hierarchies() -> list[Path]:
    """The folders in which a cgroup is created: one per controller of version 1, or that of version 2."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [folder for folder in CGROUPS.iterdir() if (folder / "cgroup.procs").exists()]


def _make_cgroup(name: str) -> None:
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            if hierarchy.name == "cpuset":
                (hierarchy / name / file).write_text((hierarchy / file).read_text())


def _remove_cgroup(name: str) -> None:
    for hierarchy in _hierarchies():
        for folder, _, _ in os.walk(hierarchy / name, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()


def _unmount(folder: Path) -> None:
    points = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for point in reversed([point for point in points if point.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
