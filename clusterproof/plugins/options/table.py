"""The suite's command line: every option in one table, grouped for `--help`. Every run of pytest reads this."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.core.kinds import forms


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its flag, its words for `--help`, and what argparse needs to know besides."""

    flag: str
    words: str
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def dest(self) -> str:
        """What its value is called in `config.option`."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def has_value(self) -> bool:
        """Whether a word follows it."""
        return self.more.get("action") != "store_true"

    @property
    def takes_dashes(self) -> bool:
        """Whether that word may begin with a dash: it is for another program's command line."""
        return self.more.get("metavar") == "WORDS"


class Joined(argparse.Action):
    """Takes what is given twice together, joined by a comma, as clush takes `-w`."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _flag: Any = None) -> None:
        """Add it to what came before."""
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, f"{before},{values}" if before else values)


GROUPS: dict[str, tuple[Option, ...]] = {
    "clusterproof: which nodes": (
        Option("--cluster", f"what to validate: {forms()}", {"metavar": "X"}),
        Option("--nodes", "only these nodes of it, folded: gpu[001-016,020]", {"metavar": "NODESET", "action": Joined}),
        Option("--exclude", "but not these", {"metavar": "NODESET", "action": Joined}),
        Option(
            "--instance-type",
            "the instance type of every node, where nothing else reports it",
            {"metavar": "TYPE"},
        ),
        Option(
            "--expect",
            "what every node must have, e.g. gpus=8,efa=32; outranks the instance type",
            {"metavar": "K=N,…", "action": Joined},
        ),
    ),
    "clusterproof: which training run": (
        Option(
            "--run",
            "what a training run wrote: a file, a folder or s3://BUCKET/PREFIX; several are files of one run",
            {"metavar": "PATH", "action": "append"},
        ),
    ),
    "clusterproof: how to reach them": (
        Option(
            "--fanout",
            "how many nodes to talk to at once (default 64)",
            {"type": int, "default": 64, "metavar": "N"},
        ),
        Option(
            "--connect-timeout",
            "seconds to reach a node (default 15)",
            {"type": float, "default": 15.0, "metavar": "S"},
        ),
        Option(
            "--answer-timeout",
            "seconds for a node's whole answer once reached (default: three times --probe-timeout, and 15)",
            {"type": float, "metavar": "S"},
        ),
        Option(
            "--accept-new-host-keys",
            "take a host key that is not in known_hosts on trust, for this run only; a changed key is still refused",
            {"action": "store_true"},
        ),
    ),
    "clusterproof: Slurm": (
        Option(
            "--via",
            "how to start the probe: controller (one srun there), nodes (a log-in or session for each), auto (the "
            "default; HyperPod: controller above 32 nodes), ssh:[user@]HOST[:port] (one srun on that log-in node), "
            "kubernetes (pods; HyperPod on EKS), or agents (of Kubernetes: what a gate's agents report)",
            {"metavar": "WAY"},
        ),
        Option(
            "--slurm-wait",
            "seconds that srun may wait for a place on nodes that others use (default 15)",
            {"type": float, "metavar": "S"},
        ),
        Option(
            "--srun-options",
            "further options of srun, e.g. '--account=ops --reservation=maintenance'",
            {"metavar": "WORDS"},
        ),
        Option(
            "--include-drained",
            "also the nodes that Slurm starts nothing on: they are reached over ssh",
            {"action": "store_true"},
        ),
    ),
    "clusterproof: Kubernetes": (
        Option(
            "--k8s-namespace",
            "the namespace for the pods of the probe (default clusterproof)",
            {"metavar": "NAME"},
        ),
        Option(
            "--k8s-image",
            "an image with Python, where nodes have none (default: any that lies on the node; nothing of it is used)",
            {"metavar": "IMAGE"},
        ),
        Option(
            "--k8s-gate",
            "write each node's verdict to Kubernetes, as its condition ClusterproofHealthy: observe, or taint also "
            "nodes that failed and have no pods with GPUs (docs/kubernetes-gate.md)",
            {"choices": ("observe", "taint")},
        ),
        Option(
            "--k8s-max-tainted",
            "how many nodes may have the gate's taint: a number, a share in percent, or both (default: a tenth, at "
            "most 10); where more would, none gets it",
            {"metavar": "LIMIT"},
        ),
        Option(
            "--k8s-startup-taint",
            "the key of a taint that new nodes begin with, which the gate takes away when they first pass",
            {"metavar": "KEY"},
        ),
        Option(
            "--k8s-every",
            "seconds between reports of a gate's agents, which --via agents reads (default 60)",
            {"type": float, "metavar": "S"},
        ),
        Option(
            "--k8s-evidence",
            "a folder where a gate keeps what a node reported when it became unfit: FOLDER/NODE/TIME, for replay:",
            {"metavar": "FOLDER"},
        ),
        Option(
            "--k8s-keep",
            "a folder of a gate's own, where a round leaves to the next, and to metrics, what it found and read",
            {"metavar": "FOLDER"},
        ),
        Option(
            "--k8s-perf-image",
            "the image of the pods that load nodes, where -m names perf: with Python and the programs that measure",
            {"metavar": "IMAGE"},
        ),
    ),
    "clusterproof: AWS": (
        Option("--region", "the AWS region (default: AWS_REGION, or the profile's)", {"metavar": "REGION"}),
        Option("--profile", "the AWS profile (default: AWS_PROFILE, or the default one)", {"metavar": "NAME"}),
        Option(
            "--ssm-rate",
            "SSM sessions to open a second (default 3: an account is allowed about that)",
            {"type": float, "metavar": "N"},
        ),
        Option(
            "--ssm-output",
            "where SSM puts answers of EC2 instances that are longer than the 24,000 characters it shows",
            {"metavar": "s3://BUCKET/PREFIX"},
        ),
        Option(
            "--fsx-window",
            "how far back to look at the load of FSx file systems, e.g. 90m, 12h or 2d (default 3h; at most 15d)",
            {"default": "3h", "metavar": "TIME"},
        ),
    ),
    "clusterproof: the probe": (
        Option(
            "--probe-timeout",
            "seconds for each kind of evidence on the node (default 5; NVML gets three times that)",
            {"type": float, "default": 5.0, "metavar": "S"},
        ),
        Option(
            "--host-root",
            "read the host under this folder of the node, e.g. in a container",
            {"default": "/", "metavar": "DIR"},
        ),
        Option(
            "--in-container",
            "run the probe in a job's container, which this begins as the job does: 'docker run --rm -i --gpus all "
            "IMAGE', 'enroot start IMAGE', 'runc exec NAME' (local and ssh; with -m job)",
            {"default": "", "metavar": "COMMAND"},
        ),
        Option("--sudo", "run the probe under sudo -n, for what only root may read", {"action": "store_true"}),
    ),
    "clusterproof: verdicts": (
        Option(
            "--policy",
            "the site's own numbers, expectations and exceptions (default: clusterproof.toml here, if there is one)",
            {"metavar": "FILE"},
        ),
        Option(
            "--incomplete",
            "what incomplete checks do to the exit code: gate (10, the default), ignore (0) or fail (1)",
            {"choices": ("gate", "ignore", "fail"), "default": "gate"},
        ),
        Option(
            "--concerns",
            "what concerns do to the exit code: ignore (the default) or fail (1)",
            {"choices": ("ignore", "fail"), "default": "ignore"},
        ),
        Option(
            "--since",
            "what of the kernel log counts: the last 90m, 24h or 2d, all from a time on (2026-03-01T08:00Z, by the "
            "node's own clock), or all of this boot (boot, the default)",
            {"default": "boot", "metavar": "WINDOW"},
        ),
        Option(
            "--log-cursor",
            "of the kernel log only what came after this counts (BOOT_ID:SEQUENCE:SECONDS, as the evidence has it); "
            "where the node has booted since, all of this boot does",
            {"default": "", "metavar": "CURSOR"},
        ),
    ),
    "clusterproof: records": (
        Option(
            "--report",
            "the folder to write the reports to (default: runs/CLUSTER/TIME here, where runs/latest leads)",
            {"metavar": "DIR"},
        ),
        Option("--no-report", "write none of these reports", {"action": "store_true"}),
        Option(
            "--report-url",
            "where what is in runs/, or in the folder of --report, is served: notifications link to the page there",
            {"metavar": "URL"},
        ),
        Option(
            "--keep",
            "after the run, remove the reports of all but the last N runs of the cluster from runs/CLUSTER",
            {"type": int, "metavar": "N"},
        ),
        Option(
            "--junit-cases",
            "what a case of junit.xml is, and so what Jenkins and GitLab keep a history of: check (default) or node",
            {"choices": ("check", "node"), "default": "check"},
        ),
        Option("--results", "write one JSON record per check and node (JSON Lines)", {"metavar": "FILE"}),
        Option("--record", "keep the evidence in a folder, for --cluster replay:DIR", {"metavar": "DIR"}),
        Option(
            "--bundle",
            "put recording, results, reports, policy and versions into one file for whoever is to help; with --redact, "
            "without names",
            {"metavar": "FILE.tar.zst"},
        ),
        Option(
            "--redact",
            "replace host names, addresses, serials and UUIDs, each always by the same word, in all that is written",
            {"action": "store_true"},
        ),
    ),
    "clusterproof: history": (
        Option(
            "--history",
            "add the run to this SQLite file, for `clusterproof history`, and compare it with the last one there "
            "(default: history.sqlite beside the cluster's runs)",
            {"metavar": "FILE"},
        ),
        Option(
            "--since-last",
            "show what is new, still there and gone since the last run in the history",
            {"action": "store_true"},
        ),
    ),
    "clusterproof: notifications": (
        Option(
            "--notify",
            "send one message where the run failed, or differs from the last one in the history, to a URL of Apprise's "
            "(Slack, e-mail, SNS, webhook, …); may be given several times",
            {"metavar": "URL", "action": "append"},
        ),
        Option(
            "--cloudwatch",
            "send a few metrics of the run to CloudWatch under this namespace (cloudwatch:PutMetricData)",
            {"metavar": "NAMESPACE"},
        ),
    ),
    "clusterproof: the catalogue": (
        Option(
            "--refresh-catalog",
            "instead of a run: compare the catalogue of instance types with EC2's own answer (default: your region)",
            {"nargs": "?", "const": "", "metavar": "REGION"},
        ),
    ),
}
