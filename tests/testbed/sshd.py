"""A real sshd in a fake node: its keys, configuration and users."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from tests.testbed.image import Content, File, Folder, NodeImage

HOST_KEY = "/etc/ssh/testbed_host_key"
CONFIG = "/etc/ssh/testbed_sshd_config"
LOGIN_SHELL = "/usr/local/bin/login-shell"
USER = "ubuntu"  # an ordinary user beside root
USER_ID = 1000
PORT = 22
LISTENING = f":{PORT:04X} 00000000:0000 0A"  # in /proc/net/tcp

SSHD_CONFIG = f"""Port {PORT}
ListenAddress 0.0.0.0
HostKey {HOST_KEY}
AuthorizedKeysFile /etc/ssh/testbed_authorized_keys
PidFile /run/testbed-sshd.pid
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 200
Subsystem sftp internal-sftp
"""


def new_key(path: Path) -> str:
    """Write a new ed25519 key pair to `path` and `path`.pub; returns the public key."""
    path.unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path.with_name(f"{path.name}.pub").read_text().strip()


def with_sshd(image: NodeImage, host_key: str, authorized_key: str) -> NodeImage:
    """The image with everything its sshd needs; `authorized_key` may log in as root and USER."""
    shell = LOGIN_SHELL if image.login_shell else "/bin/sh"
    files: dict[str, Content] = {
        HOST_KEY: File(host_key, 0o600),
        CONFIG: SSHD_CONFIG + ("Banner /etc/ssh/testbed_banner\n" if image.banner else ""),
        "/etc/ssh/testbed_authorized_keys": f"{authorized_key}\n",
        "/etc/ssh/testbed_banner": image.banner,
        "/etc/passwd": f"root:x:0:0:root:/root:{shell}\n"
        "sshd:x:101:65534::/run/sshd:/usr/sbin/nologin\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        f"{USER}:x:{USER_ID}:{USER_ID}:Ubuntu:/home/{USER}:{shell}\n",
        "/etc/group": f"root:x:0:\nnogroup:x:65534:\n{USER}:x:{USER_ID}:\n",
        "/etc/shadow": File(f"root:*:19000::::::\n{USER}:*:19000::::::\n", 0o600),
        "/run/sshd": Folder(),
        f"/home/{USER}": Folder(),
    }
    if image.login_shell:
        files[LOGIN_SHELL] = File(image.login_shell, 0o755)
    return replace(image, files=image.files | files)


def listens(pid: int) -> bool:
    """Whether something listens on PORT in that process's network."""
    return LISTENING in Path(f"/proc/{pid}/net/tcp").read_text()
