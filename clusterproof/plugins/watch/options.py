"""The options of `clusterproof watch`, what they may not say, and the settings that follow from them."""

from __future__ import annotations

import argparse
import re

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.kinds import CONNECTIONS
from clusterproof.plugins.core.one_line import OneLineParser
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.inventory import narrow, resolve, with_expectations
from clusterproof.plugins.kubernetes import HOST
from clusterproof.plugins.options import MAX_S, MIN_S
from clusterproof.plugins.options.table import Joined
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.transport.srun import submit_host
from clusterproof.plugins.transport.srun.connection import JOB
from clusterproof.plugins.watch.controller import WatchSettings
from clusterproof.plugins.watch.job import cluster_of, folder_of
from clusterproof.plugins.watch.sampler_session import SamplerOptions
from clusterproof.plugins.watch.timing import InvalidTiming, Timing

MIN_REMIND_S = 60.0
MIN_EVERY_S, MAX_EVERY_S = 1.0, 3600.0
_SPAN = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhd]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parser() -> argparse.ArgumentParser:
    """The command line of `clusterproof watch`."""
    parser = OneLineParser(
        prog="clusterproof watch",
        description="Samples a cluster's nodes while jobs run, follows their kernel logs, evaluates the same checks, "
        "and reports what changes. Ends on SIGINT or SIGTERM, or after --for.",
        allow_abbrev=False,
        fromfile_prefix_chars="@",  # for URLs that hold passwords
    )
    help_text = "what to watch: local, nodes by ssh or of Kubernetes, slurm:job:ID, or FILE.toml"
    parser.add_argument("x", nargs="?", metavar="X", help=help_text)
    parser.add_argument("--cluster", metavar="X", help="the same as X")
    help_text = "watch a Slurm job, or NAMESPACE/NAME of a Kubernetes job, until it ends; its report goes to --record"
    parser.add_argument("--job", metavar="ID", help=help_text)
    parser.add_argument("--steps", action="append", default=[], metavar="PATH", help="with --job: its step logs")
    parser.add_argument("--nodes", action=Joined, metavar="NODESET", help="only these nodes of X")
    parser.add_argument("--exclude", action=Joined, metavar="NODESET", help="but not these")
    parser.add_argument("--every", default="10", metavar="S", help="seconds between samples (default 10)")
    help_text = "watch for 90s, 30m, 24h once all nodes have been checked (default: until stopped)"
    parser.add_argument("--for", dest="for_s", metavar="TIME", help=help_text)
    parser.add_argument("--record", metavar="DIR", help="keep samples, evidence and changes, for --cluster replay:DIR")
    parser.add_argument(
        "--listen", metavar="[HOST]:PORT", help="serve a page and metrics (:9188: only for this machine)"
    )
    parser.add_argument("--textfile", metavar="FILE.prom", help="write the metrics to a file for node_exporter")
    help_text = "report changes to an Apprise URL, or to a program's standard input; may be given several times"
    parser.add_argument("--notify", action="append", default=[], metavar="URL|COMMAND", help=help_text)
    parser.add_argument("--remind", metavar="TIME", help="notify again about what is still open, e.g. after 4h")
    help_text = "request this dead man's switch URL while the watch completes its rounds, at most once a minute"
    parser.add_argument("--heartbeat", metavar="URL", help=help_text)
    parser.add_argument("--policy", metavar="FILE", help="the site's own thresholds, expectations and exceptions")
    _add_node_options(parser)
    return parser


def _add_node_options(parser: argparse.ArgumentParser) -> None:
    """How nodes are reached, and what they are expected to be."""
    parser.add_argument("--instance-type", default="", metavar="TYPE", help="of every node; outranks others")
    help_text = "what every node must have, e.g. gpus=8,efa=32"
    parser.add_argument("--expect", action=Joined, metavar="K=N,…", help=help_text)
    parser.add_argument("--region", default="", metavar="REGION", help="the AWS region")
    parser.add_argument("--profile", default="", metavar="NAME", help="the AWS profile")
    parser.add_argument("--via", default="", metavar="WAY", help="for Slurm: nodes (by ssh), or ssh:[user@]HOST")
    parser.add_argument("--fanout", type=int, default=64, metavar="N", help="nodes to connect to at once (default 64)")
    parser.add_argument("--connect-timeout", type=float, default=15.0, metavar="S", help="to reach a node (default 15)")
    parser.add_argument("--accept-new-host-keys", action="store_true", help="trust unknown host keys")
    parser.add_argument("--sudo", action="store_true", help="use sudo -n to read what only root may")
    parser.add_argument("--host-root", default="/", metavar="DIR", help="where the host's root is mounted on the node")
    parser.add_argument("--k8s-namespace", default="", metavar="NAME", help="for the pods (default clusterproof)")
    parser.add_argument("--k8s-image", default="", metavar="IMAGE", help="an image with Python, if the nodes have none")


class Refused(ClusterproofError):  # noqa: N818 - an outcome of the command line
    """A command line that cannot be fulfilled; the message says what was expected."""


def cluster_to_watch(option: argparse.Namespace, policy: Policy) -> Cluster:
    """The cluster to watch. Raises Refused, InventoryError."""
    given = {key: getattr(option, key) for key in ("region", "profile", "via")}
    cluster = resolve(option.cluster, {key: value for key, value in given.items() if value})
    cluster = narrow(cluster, option.nodes or "", option.exclude or "")
    cluster = with_expectations(cluster, option.instance_type, option.expect or "", policy.expect)
    why_not = why_not_watched(cluster)
    if why_not:
        raise Refused(f"{option.cluster:.80} is reached by {cluster.connection}: {why_not}")
    return cluster


def why_not_watched(cluster: Cluster) -> str:
    """Why nodes of a cluster cannot be watched, and the alternative; empty if they can."""
    if cluster.connection != "srun":
        instead = "expected local, nodes by ssh (of Slurm: --via nodes), slurm:job:ID, or Kubernetes nodes"
        why_not = CONNECTIONS[cluster.connection].why_no_sessions
        return f"{why_not}; {instead}" if why_not else ""
    by = submit_host(cluster.settings).connection
    why_not = CONNECTIONS[by].why_no_sessions
    if why_not:
        return f"on a host that is reached by {by}: {why_not}; expected --via nodes with ssh, or a log-in node"
    if not cluster.settings.get(JOB):
        return "without a job, it would occupy each node for as long as it runs; expected slurm:job:ID, or --via nodes"
    return ""


def settings_of(option: argparse.Namespace, cluster: Cluster, policy: Policy) -> WatchSettings:
    """The settings of the watch. Raises Refused."""
    every_s = _span(option.every, "--every")
    if not MIN_EVERY_S <= every_s <= MAX_EVERY_S:
        raise Refused(f"--every is {option.every:.20}; expected from {MIN_EVERY_S:.0f} to {MAX_EVERY_S:.0f} s")
    if option.fanout < 1 or not MIN_S <= option.connect_timeout <= MAX_S:
        raise Refused(
            f"--fanout is {option.fanout}, --connect-timeout {option.connect_timeout:g}; expected 1 or more, and "
            f"{MIN_S:g} to {MAX_S} s"
        )
    if not option.host_root.startswith("/"):
        raise Refused(f"--host-root is {option.host_root!r:.80}; expected a folder that begins with /")
    trust = {"accept_new_host_keys": "yes"} if option.accept_new_host_keys else {}
    ours = {key: getattr(option, key) for key in ("k8s_namespace", "k8s_image") if getattr(option, key)}
    root = HOST if option.k8s_image and cluster.connection == "kubernetes" else option.host_root
    return WatchSettings(
        SamplerOptions(every_s, root, option.sudo, policy.mounts),
        Limits(option.fanout, option.connect_timeout, settings={**cluster.settings, **trust, **ours}),
        ProbeOptions(host_root=root, sudo=option.sudo, checkpoints=policy.checkpoints, mounts=policy.mounts),
        None if option.for_s is None else _span(option.for_s, "--for"),
    )


def timing_of(policy: Policy) -> Timing:
    """How long something must last before it is reported. Raises Refused."""
    try:
        return Timing.of(Catalog.of(policy))
    except InvalidTiming as wrong:
        raise Refused(f"{policy.source}: {wrong}") from None


def _span(text: str, flag: str) -> float:
    """Seconds of `90`, `90s`, `30m`, `24h`, `2d`. Raises Refused."""
    match = _SPAN.fullmatch(text)
    if not match:
        raise Refused(f"{flag} is {text[:40]!r}; expected a time span such as 90s, 30m or 24h")
    return float(match[1]) * _SECONDS[match[2]]


def remind_s(option: argparse.Namespace) -> float | None:
    """How often open states are sent again. Raises Refused."""
    if option.remind is None:
        return None
    seconds = _span(option.remind, "--remind")
    if seconds < MIN_REMIND_S:
        raise Refused(f"--remind is {option.remind:.20}; expected a minute or more, such as 4h")
    return seconds


def complete(option: argparse.Namespace) -> None:
    """Fill in the cluster and the folder for a job. Raises Refused if options contradict each other."""
    if option.x and option.cluster:
        raise Refused(f"both {option.x:.80} and --cluster {option.cluster:.80} are given; expected one of them")
    option.cluster = option.x or option.cluster
    if option.job:
        option.cluster = cluster_of(option.job, option.cluster)
        option.record = option.record or folder_of(option.job)
    if not option.cluster:
        raise Refused("nothing to watch; expected clusterproof watch X, or --job ID")
    if option.remind and not option.notify:
        raise Refused("--remind repeats notifications; expected --notify with it")
    if option.steps and not option.job:
        raise Refused("--steps is for a job; expected --job ID with it")
