"""All options of the suite in one table, grouped for `--help`. Every run of pytest reads this."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.core.kinds import forms


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its flag, its help, and argparse's parameters."""

    flag: str
    words: str
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def dest(self) -> str:
        """The name of its value in `config.option`."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def has_value(self) -> bool:
        """Whether it takes a value."""
        return self.more.get("action") != "store_true"

    @property
    def takes_dashes(self) -> bool:
        """Whether the value may begin with a dash: it is another program's argument."""
        return self.more.get("metavar") == "WORDS"


class Joined(argparse.Action):
    """Joins repeated values with a comma, as clush does for `-w`."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _flag: Any = None) -> None:
        """Append a value."""
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, values if before is None else f"{before},{values}")


GROUPS: dict[str, tuple[Option, ...]] = {
    "clusterproof: which nodes": (
        Option("--cluster", f"what to validate: {forms()}", {"metavar": "X"}),
        Option("--nodes", "only these nodes of X: gpu[001-016,020]", {"metavar": "NODESET", "action": Joined}),
        Option("--exclude", "leave out these nodes", {"metavar": "NODESET", "action": Joined}),
        Option(
            "--instance-type",
            "the instance type of every node; outranks what the inventory and the node report",
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
            "what a training run wrote: a file, a folder or s3://BUCKET/PREFIX; may be given several times for one run",
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
            "seconds for a node's whole answer once it is reached (default: three times --probe-timeout, plus 15)",
            {"type": float, "metavar": "S"},
        ),
        Option(
            "--accept-new-host-keys",
            "trust a host key that is not in known_hosts, for this run only; a changed key is still refused",
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
            "seconds that srun may wait for busy nodes (default 15)",
            {"type": float, "metavar": "S"},
        ),
        Option(
            "--srun-options",
            "additional options for srun, e.g. '--account=ops --reservation=maintenance'",
            {"metavar": "WORDS"},
        ),
        Option(
            "--include-drained",
            "include nodes that Slurm starts no jobs on; they are reached over ssh",
            {"action": "store_true"},
        ),
    ),
    "clusterproof: Kubernetes": (
        Option(
            "--k8s-namespace",
            "the namespace for the probe's pods (default clusterproof)",
            {"metavar": "NAME"},
        ),
        Option(
            "--k8s-image",
            "an image with Python, if the nodes have none (default: any image on the node, as nothing in it is used)",
            {"metavar": "IMAGE"},
        ),
        Option(
            "--k8s-gate",
            "write each node's verdict to Kubernetes as its condition ClusterproofHealthy: observe only that, or also "
            "taint nodes that failed and run no pods with GPUs (docs/kubernetes-gate.md)",
            {"choices": ("observe", "taint")},
        ),
        Option(
            "--k8s-max-tainted",
            "how many nodes may have the gate's taint: a number, a percentage, or both (default: a tenth, at most 10 "
            "nodes); if more would get it, none does",
            {"metavar": "LIMIT"},
        ),
        Option(
            "--k8s-startup-taint",
            "the key of a taint that new nodes start with, which the gate removes when they first pass",
            {"metavar": "KEY"},
        ),
        Option(
            "--k8s-every",
            "seconds between the reports of a gate's agents, for --via agents (default 60)",
            {"type": float, "metavar": "S"},
        ),
        Option(
            "--k8s-evidence",
            "a folder where the gate keeps the evidence of a node that became unfit, as FOLDER/NODE/TIME, for replay:",
            {"metavar": "FOLDER"},
        ),
        Option(
            "--k8s-keep",
            "a folder of the gate's own, for what each round leaves to the next round and to metrics",
            {"metavar": "FOLDER"},
        ),
        Option(
            "--k8s-perf-image",
            "the image of the pods that load nodes with -m perf: it needs Python and the benchmark programs",
            {"metavar": "IMAGE"},
        ),
    ),
    "clusterproof: AWS": (
        Option("--region", "the AWS region (default: AWS_REGION, or the profile's)", {"metavar": "REGION"}),
        Option("--profile", "the AWS profile (default: AWS_PROFILE, or the default one)", {"metavar": "NAME"}),
        Option(
            "--ssm-rate",
            "SSM sessions to open per second (default 3, about what AWS allows an account)",
            {"type": float, "metavar": "N"},
        ),
        Option(
            "--ssm-output",
            "where SSM stores answers of EC2 instances that exceed the 24,000 characters it returns",
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
            "seconds for each collector on the node (default 5; NVML gets three times that)",
            {"type": float, "default": 5.0, "metavar": "S"},
        ),
        Option(
            "--host-root",
            "the folder of the node where the host's root is mounted, e.g. in a container",
            {"default": "/", "metavar": "DIR"},
        ),
        Option(
            "--in-container",
            "run the probe in a job's container, started by this command as the job does: 'docker run --rm -i --gpus "
            "all IMAGE', 'enroot start IMAGE', 'runc exec NAME' (local and ssh; with -m job)",
            {"default": "", "metavar": "COMMAND"},
        ),
        Option("--sudo", "run the probe with sudo -n, to read what only root may", {"action": "store_true"}),
    ),
    "clusterproof: verdicts": (
        Option(
            "--policy",
            "the site's own thresholds, expectations and exceptions (default: ./clusterproof.toml, if it exists)",
            {"metavar": "FILE"},
        ),
        Option(
            "--incomplete",
            "the exit code if checks are incomplete: gate (10, the default), ignore (0) or fail (1)",
            {"choices": ("gate", "ignore", "fail"), "default": "gate"},
        ),
        Option(
            "--concerns",
            "the exit code if there are concerns: ignore (0, the default) or fail (1)",
            {"choices": ("ignore", "fail"), "default": "ignore"},
        ),
        Option(
            "--since",
            "how much of the kernel log counts: the last 90m, 24h or 2d, everything since a time (2026-03-01T08:00Z, "
            "by the node's own clock), or all of this boot (boot, the default)",
            {"default": "boot", "metavar": "WINDOW"},
        ),
        Option(
            "--log-cursor",
            "count only kernel log messages after this one (BOOT_ID:SEQUENCE:SECONDS, from earlier evidence); if the "
            "node has rebooted since, all of this boot counts",
            {"default": "", "metavar": "CURSOR"},
        ),
    ),
    "clusterproof: records": (
        Option(
            "--report",
            "the folder for the reports (default: ./runs/CLUSTER/TIME, which runs/latest points to)",
            {"metavar": "DIR"},
        ),
        Option("--no-report", "write no reports", {"action": "store_true"}),
        Option(
            "--report-url",
            "the URL under which runs/, or the folder of --report, is served: notifications link to the report there",
            {"metavar": "URL"},
        ),
        Option(
            "--keep",
            "after the run, keep only the reports of the cluster's last N runs in runs/CLUSTER",
            {"type": int, "metavar": "N"},
        ),
        Option(
            "--junit-cases",
            "what a test case in junit.xml stands for, and so what Jenkins and GitLab keep a history of: check "
            "(default) or node",
            {"choices": ("check", "node"), "default": "check"},
        ),
        Option("--results", "write one JSON record per check and node (JSON Lines)", {"metavar": "FILE"}),
        Option("--record", "keep the evidence in a folder, for --cluster replay:DIR", {"metavar": "DIR"}),
        Option(
            "--bundle",
            "pack recording, results, reports, policy and versions into one file to send to support; with --redact, "
            "without names",
            {"metavar": "FILE.tar.zst"},
        ),
        Option(
            "--redact",
            "replace host names, addresses, serials and UUIDs, each always by the same word, in all output",
            {"action": "store_true"},
        ),
    ),
    "clusterproof: history": (
        Option(
            "--history",
            "add the run to this SQLite file, for `clusterproof history`, and compare it with the last run there "
            "(default: history.sqlite next to the cluster's runs)",
            {"metavar": "FILE"},
        ),
        Option(
            "--since-last",
            "show what is new, unchanged and resolved since the last run in the history",
            {"action": "store_true"},
        ),
    ),
    "clusterproof: notifications": (
        Option(
            "--notify",
            "send a message if the run failed, or differs from the last one in the history, to an Apprise URL (Slack, "
            "e-mail, SNS, webhook, …); may be given several times",
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
            "instead of a run, compare the catalogue of instance types with EC2's API (default: your region)",
            {"nargs": "?", "const": "", "metavar": "REGION"},
        ),
    ),
}
