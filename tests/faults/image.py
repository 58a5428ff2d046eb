"""An image's content: libraries that load, no leftovers, complete container runtimes."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.faults.software import without_libcuda
from tests.testbed import software
from tests.testbed.image import File, Link
from tests.testbed.node import with_file, with_line, without_file
from tests.testbed.software import LIBRARIES, OFI_NCCL

LOAD, CLEAN, RUNTIME = "software.libraries_load", "software.image_clean", "software.container_runtime"
DRIFT, IN_CONTAINER = "software.version_drift", "software.container_libraries"
NET = f"{OFI_NCCL}/libnccl-net"

FAULTS = (
    Fault(
        "a libcuda whose link leads nowhere",
        lambda image: with_file(image, f"{LIBRARIES}/libcuda.so.1", Link("libcuda.so.550.54.14")),
        {LOAD: FAIL, IN_CONTAINER: FAIL},
        "libcuda.so.1 is a dangling link",
    ),
    Fault(
        "no libcuda on a node with GPUs",
        without_libcuda,
        {LOAD: FAIL, DRIFT: CONCERN, IN_CONTAINER: FAIL},
        "no libcuda.so.1; expected each library to exist and not to be empty",
    ),
    Fault(
        "an empty NCCL",
        lambda image: with_file(image, f"{LIBRARIES}/libnccl.so.2.27.7", ""),
        {LOAD: FAIL, IN_CONTAINER: FAIL},
        "libnccl.so.2 is empty",
    ),
    Fault(
        "no NCCL plug-in for EFA in an image",
        lambda image: without_file(image, f"{NET}.so"),
        {LOAD: FAIL, IN_CONTAINER: CONCERN},
        "no libnccl-net.so",
        occasion="ami",
    ),
    Fault(
        "an NCCL whose size cannot be read",
        lambda image: with_file(image, f"{LIBRARIES}/libnccl.so.2", Link("libnccl.so.2")),
        {LOAD: INCOMPLETE, IN_CONTAINER: FAIL},
        "the size of libnccl.so.2 may not be read",
    ),
    Fault(
        "a module of cloud-init that failed",
        lambda image: with_file(
            image, software.CLOUD_INIT, '{"v1": {"errors": ["(\'scripts_user\', RuntimeError(\'1 failed\'))"]}}'
        ),
        {CLEAN: FAIL},
        "cloud-init: ('scripts_user', RuntimeError('1 failed'))",
    ),
    Fault(
        "no result of cloud-init",
        lambda image: without_file(image, software.CLOUD_INIT),
        {CLEAN: INCOMPLETE},
        "cloud-init wrote no result",
    ),
    Fault(
        "a result of cloud-init that was cut",
        lambda image: with_file(image, software.CLOUD_INIT, '{"v1": {"err'),
        {CLEAN: INCOMPLETE},
        "cloud_init could not be read (EINVAL)",
    ),
    Fault(
        "credentials left in an image",
        lambda image: with_file(image, "/root/.aws/credentials", File("[default]\n", 0o600)),
        {CLEAN: FAIL},
        "left behind: /root/.aws/credentials",
    ),
    Fault(
        "a shell history and a crash dump left in an image",
        lambda image: with_file(
            with_file(image, "/root/.bash_history", "make install\n"), "/var/crash/_usr_bin_slurmd.0.crash", "core"
        ),
        {CLEAN: FAIL},
        "left behind: /root/.bash_history, /var/crash/_usr_bin_slurmd.0.crash",
    ),
    Fault(
        "the key of somebody who built the image",
        lambda image: with_line(image, software.KEYS, "ssh-rsa AAAA builder"),
        {CLEAN: FAIL},
        "2 keys may log in as ubuntu, cloud-init gives 1",
    ),
    Fault(
        "a key with which root may log in",
        lambda image: with_file(image, "/root/.ssh/authorized_keys", "ssh-rsa AAAA builder\n"),
        {CLEAN: FAIL},
        "1 keys may log in as root, cloud-init gives 0",
    ),
    Fault(
        "the machine-id of the machine that built the image",
        lambda image: with_file(image, software.MACHINE_ID, File("ec2f\n", written=software.BOOTED - 86_400)),
        {CLEAN: FAIL},
        "older than the instance: /etc/machine-id; expected none of these in an image",
    ),
    Fault(
        "host keys of sshd of the machine that built the image",
        lambda image: with_file(image, software.HOST_KEY, File("key\n", 0o600, software.BOOTED - 86_400)),
        {CLEAN: FAIL},
        f"older than the instance: {software.HOST_KEY}",
    ),
    Fault(
        "an installation that was interrupted",
        lambda image: with_file(image, "/var/lib/dpkg/updates/0001", "Package: libc6\n"),
        {CLEAN: FAIL},
        "not ended: /var/lib/dpkg/updates/0001",
    ),
    Fault(
        "a container toolkit without its configuration",
        lambda image: without_file(image, software.TOOLKIT),
        {RUNTIME: FAIL},
        "containerd without configuration of NVIDIA's container toolkit",
    ),
    Fault(
        "no container toolkit beside containerd",
        lambda image: without_file(image, "/usr/bin/nvidia-container-runtime"),
        {RUNTIME: FAIL},
        "containerd without nvidia-container-runtime",
    ),
    Fault(
        "a configuration of enroot without enroot",
        lambda image: without_file(image, "/usr/bin/enroot"),
        {RUNTIME: FAIL},
        "/etc/enroot without enroot",
    ),
    Fault(
        "a plug-in that Slurm requires and that is not there",
        lambda image: without_file(image, software.PYXIS),
        {RUNTIME: FAIL},
        f"Slurm requires {software.PYXIS}, which does not exist",
    ),
    Fault(
        "a plug-in that Slurm may do without and that is not there",
        lambda image: with_file(image, software.PLUGSTACK, "optional /usr/lib/slurm/x11.so\n"),
        {RUNTIME: CONCERN},
        "optional plug-in /usr/lib/slurm/x11.so does not exist",
    ),
)
