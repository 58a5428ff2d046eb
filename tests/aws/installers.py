"""Installs the suite on fake nodes: stand-ins for pip, and a real pip without a network."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from tests.testbed.image import File
from tests.testbed.node import NodeImage, with_file, with_whole_machine

INTEGRATIONS = Path(__file__).parents[2] / "integrations"
IDLE = INTEGRATIONS / "systemd" / "clusterproof-idle"
CLUSTERPROOF = str(Path(sys.executable).with_name("clusterproof"))
PACKAGE = "https://wheels.example/clusterproof-1-py3-none-any.whl#sha256=0"
PIP = """#!/bin/sh
[ "$1 $2" = "-m venv" ] || exec {python} "$@"
mkdir -p "$3/bin"
ln -sf {clusterproof} "$3/bin/clusterproof"
printf '#!/bin/sh\\necho "$@" >>{log}\\n' >"$3/bin/pip"
chmod +x "$3/bin/pip"
"""
OLD = File("#!/bin/sh\nexit 1\n", 0o755)  # a python3 older than required
STAND_INS = "/opt/stand-ins"


def with_installer(image: NodeImage) -> NodeImage:
    """`python3 -m venv` makes a folder with this checkout's clusterproof and a pip that only logs its arguments."""
    script = PIP.format(python=sys.executable, clusterproof=CLUSTERPROOF, log="/run/pip.log")
    return with_file(with_whole_machine(image), f"{STAND_INS}/python3", File(script, 0o755))


# A node's Python has no network: a real pip installs only the wheel, and finds its dependencies here.
VENV = """#!/bin/sh
{python} "$@" || exit
[ "$1 $2" != "-m venv" ] || echo {borrowed} >"$(echo "$3"/lib/python3*/site-packages)/borrowed.pth"
"""
OFFLINE = "[global]\nno-deps = true\nno-index = true\n"


def with_python(image: NodeImage) -> NodeImage:
    """A node whose `python3` makes real environments, each with a real pip."""
    script = VENV.format(python=sys.executable, borrowed=sysconfig.get_path("purelib"))
    image = with_file(with_whole_machine(image), "/etc/pip.conf", OFFLINE)
    return with_file(image, f"{STAND_INS}/python3", File(script, 0o755))
