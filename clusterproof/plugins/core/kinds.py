"""The kinds of X in `--cluster X`, as a person writes them. Every run of pytest reads this, for `--help`: no more."""

from __future__ import annotations

from clusterproof.plugins.core.record import record


@record
class Kind:
    """One kind of X: the word it begins with, its form as a person writes it, and who resolves it.

    `resolver` is `module.function` in the package `inventory`: `function(rest, options) -> Cluster`, where `rest` is X
    behind the word. A word without a colon is all of X.
    """

    word: str
    form: str
    resolver: str


KINDS = (
    Kind("local", "local", "here.local"),
    Kind("demo", "demo", "recording.demo"),
    Kind("replay:", "replay:DIR", "recording.replay"),
    Kind("capture:", "capture:PATH", "capture.capture"),
    Kind("ssh:", "ssh:[user@]NODESET[:port]", "hosts.ssh"),
    Kind("slurm:", "slurm:[PARTITION|NODESET|job:ID]", "slurm.slurm"),
    Kind("k8s:", "k8s:CONTEXT[/SELECTOR]", "kubernetes.k8s"),
    Kind("eks:", "eks:NAME", "kubernetes.eks"),
    Kind("ec2:", "ec2:tag:KEY=VALUE", "ec2.ec2"),
    Kind("asg:", "asg:NAME", "ec2.asg"),
)
HYPERPOD = Kind("", "a HyperPod cluster's NAME or ARN", "hyperpod.hyperpod")
FILE = Kind("", "FILE.toml", "file.toml")


def forms() -> str:
    """What X may be, as a person writes it: `local, demo, …, or FILE.toml`."""
    every = [kind.form for kind in (*KINDS, HYPERPOD, FILE)]
    return f"{', '.join(every[:-1])}, or {every[-1]}"


NO_CLUSTER = f"no cluster to validate; say which: --cluster {forms()}; or which training run to evaluate: --run PATH"
