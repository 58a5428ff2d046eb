"""NVIDIA's IMEX on a tray of an NVLink rack: its domain, configured members, and channels."""

from __future__ import annotations

import os
import re

from clusterproof.plugins.agent.process_group import stat_fields
from clusterproof.plugins.agent.reading import Absent, Denied, Node, error
from clusterproof.plugins.agent.tools import command
from clusterproof.plugins.agent.trust import distrust
from clusterproof.plugins.evidence.host.collect_owner import OF_THE_HOST, program

CONFIG = "/etc/nvidia-imex/config.cfg"
NODES = "/etc/nvidia-imex/nodes_config.cfg"
CHANNELS = "/dev/nvidia-caps-imex-channels"
DAEMON, CTL = "nvidia-imex", "nvidia-imex-ctl"
MAX_NODES = 1024
SERVICE = re.compile(r":/[\w.-]+\.slice/[\w.@-]*imex[\w.@-]*\.service$", re.MULTILINE)
STARTED = 21  # of the fields of /proc/PID/stat: ticks since boot


def read(node: Node) -> object:
    """The configuration of nvidia-imex, its status, and the channels for jobs.

    Raises Absent if neither its configuration nor its program exists, Denied if users other than root may change the
    configuration that its daemon uses.
    """
    daemon = _daemon(node)
    named = str(daemon["config"]) if daemon else ""
    config = _own(node, named) if named else node.text(CONFIG, absent="")
    listed = _nodes_file(str(config))
    if not named:
        nodes = node.text(listed, absent="")
    else:
        nodes = _own(node, listed) if isinstance(config, str) else config
    domain = _domain(node, ("-c", named) if named else ())
    if not config and not nodes and domain is None and daemon is None:
        raise Absent(f"no {CONFIG}, {NODES} nor {CTL}")
    return {
        "nodes": _lines(nodes) if isinstance(nodes, str) else nodes,
        "channels": [int(name[7:]) for name in node.names(CHANNELS) if re.fullmatch(r"channel\d{1,7}", name)][:64],
        "channel_count": _channel_count(node),
        "domain": domain,
        "daemon": daemon,
    }


def _daemon(node: Node) -> dict[str, object] | None:
    """The daemon that root runs on the host: the configuration in its arguments, and its running time.

    None if there is none, or only root may know.
    """
    for pid in node.pids():
        try:
            if node.read(f"/proc/{pid}/comm").strip() == DAEMON and _is_believed(node, pid):
                argv = node.read(f"/proc/{pid}/cmdline").split("\0")
                ticks = int(stat_fields(node.read(f"/proc/{pid}/stat"))[STARTED])
                active_s = float(node.read("/proc/uptime").split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
                return {"config": _named_in(argv), "active_s": round(active_s, 1)}
        except OSError:
            continue  # it ended meanwhile
    return None


def _is_believed(node: Node, pid: str) -> bool:
    """Whether it is root's, according to the program, else to a service's control group, which no user can enter."""
    if not OF_THE_HOST.search(node.read(f"/proc/{pid}/status")):
        return False
    runs = program(node, pid)
    return runs == DAEMON if runs else bool(SERVICE.search(node.read(f"/proc/{pid}/cgroup")))


def _named_in(argv: list[str]) -> str:
    """The file of `-c FILE` in the arguments; empty if there is no absolute path."""
    return next((path for word, path in zip(argv, argv[1:]) if word == "-c" and path[:1] == "/"), "")


def _own(node: Node, path: str) -> str | dict[str, str]:
    """The text of a file that only root may change, an error object, or empty if missing. Raises Denied."""
    try:
        why = distrust(path, node.root)
    except FileNotFoundError:
        return ""
    except OSError as problem:
        return error(problem)
    if why:
        raise Denied(f"{path} is not read: {why}; expected a file that only root may change")
    return node.text(path, absent="")


def _nodes_file(config: str) -> str:
    """The file with the addresses of the domain's nodes, according to config.cfg."""
    rows = (line.partition("=") for line in config.splitlines())
    named = (path.strip() for key, _, path in rows if key.strip() == "IMEX_NODE_CONFIG_FILE")
    return next((path for path in named if path[:1] == "/"), NODES)


def _domain(node: Node, config: tuple[str, ...]) -> object:
    """The output of `nvidia-imex-ctl -N`: JSON, or a table from older versions; null if there is none."""
    try:
        answer = command(node, CTL, "-N", "-j", "-H", *config)
        return answer if answer["exit"] == 0 or "{" in str(answer["output"]) else command(node, CTL, "-N", *config)
    except Absent:
        return None


def _lines(text: str) -> list[str]:
    """The addresses in a nodes_config.cfg, in order, without comments and empty lines."""
    lines = (line.strip() for line in text.splitlines())
    return [line[:300] for line in lines if line and line[0] != "#"][:MAX_NODES]


def _channel_count(node: Node) -> object:
    """The number of channels configured in the driver (NVreg_ImexChannelCount); null if unknown."""
    text = node.text("/proc/driver/nvidia/params", absent="")
    if not isinstance(text, str):
        return text
    count = re.search(r"(?m)^ImexChannelCount: (\d{1,9})$", text)
    return int(count[1]) if count else None
