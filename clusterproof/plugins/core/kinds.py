"""The kinds of X in `--cluster X` and the connections that reach nodes: what each is, and where its code is.

Every run of pytest reads this, for `--help`, so it imports none of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.record import record


@record
class Kind:
    """One kind of X: its prefix, its form as the user types it, its help, and its resolver.

    `resolver` is `MODULE:FUNCTION` in the package `plugins`: `function(rest, options) -> Cluster`, where `rest` is X
    after the prefix. A prefix without a colon is all of X.
    """

    word: str
    form: str
    help: str
    resolver: str
    is_live: bool = True  # whether its nodes can be contacted now; else the data is from another time


KINDS = (
    Kind("local", "local", "this machine", "inventory.file:local"),
    Kind(
        "demo",
        "demo",
        "a recorded cluster of 16 nodes, most of them sick: to see what reports look like",
        "inventory.file:demo",
        is_live=False,
    ),
    Kind(
        "replay:",
        "replay:DIR",
        "what --record DIR kept: the same verdicts, offline",
        "inventory.file:replay",
        is_live=False,
    ),
    Kind(
        "capture:",
        "capture:PATH",
        "outputs of commands that a person collected",
        "inventory.file:capture",
        is_live=False,
    ),
    Kind(
        "ssh:",
        "ssh:[user@]NODESET[:port]",
        "by ssh: 'ssh:ubuntu@gpu[001-016,020]'; ~/.ssh/config, agent and known_hosts hold",
        "inventory.file:ssh",
    ),
    Kind("slurm:", "slurm:[PARTITION|NODESET|job:ID]", "nodes of Slurm, by one srun", "inventory.slurm:slurm"),
    Kind(
        "k8s:",
        "k8s:CONTEXT[/SELECTOR]",
        "nodes of Kubernetes with accelerators, by a pod each; also k8s:in-cluster",
        "inventory.kubernetes:k8s",
    ),
    Kind("eks:", "eks:NAME", "the same of an EKS cluster, without a kubeconfig", "inventory.kubernetes:eks"),
    Kind(
        "ec2:", "ec2:tag:KEY=VALUE", "instances of EC2 through Systems Manager; also ec2:i-…,i-…", "inventory.ec2:ec2"
    ),
    Kind("asg:", "asg:NAME", "the instances of an Auto Scaling group", "inventory.ec2:asg"),
)
HYPERPOD = Kind(
    "",
    "a HyperPod cluster's NAME or ARN",
    "a SageMaker HyperPod cluster, through Systems Manager",
    "inventory.hyperpod:hyperpod",
)
FILE = Kind("", "FILE.toml", "an inventory: clusterproof init writes one to begin with", "inventory.file:toml")


@record
class ConnectionKind:
    """What is known about a connection without importing it.

    `connection` is `MODULE:CLASS` in the package `plugins` (`transport.Connection`); empty if evidence is read from
    disk. `sessions` is `MODULE:FUNCTION` there: `function(limits) -> transport.Sessions`, used to watch nodes; if
    empty, `why_no_sessions` says why.
    """

    connection: str = ""
    sessions: str = ""
    why_no_sessions: str = ""
    may_be_on_ec2: bool = False  # whether only the nodes can tell if they are EC2 instances

    @property
    def is_live(self) -> bool:
        """Whether it contacts nodes; else its data is from another time."""
        return bool(self.connection)


# Keyed by Cluster.connection.
CONNECTIONS: Mapping[str, ConnectionKind] = {
    "local": ConnectionKind("transport.local:Local", "transport.local:sessions", may_be_on_ec2=True),
    "ssh": ConnectionKind("transport.ssh.connection:Ssh", "transport.ssh.session:sessions", may_be_on_ec2=True),
    "hyperpod": ConnectionKind(
        "transport.hyperpod:Hyperpod",
        why_no_sessions="a session of Systems Manager is one answer, and AWS ends it after a while",
    ),
    "ssm": ConnectionKind(
        "transport.ssm:Ssm", why_no_sessions="Systems Manager's commands end with an answer, and stream nothing"
    ),
    "srun": ConnectionKind("transport.srun.connection:Srun", "transport.srun.connection:sessions", may_be_on_ec2=True),
    "kubernetes": ConnectionKind(
        "transport.kubernetes.connection:Kubernetes",
        "transport.kubernetes.sessions:PodSessions",
        may_be_on_ec2=True,
    ),
    "agents": ConnectionKind(
        "transport.kubernetes.agents:Agents",
        why_no_sessions="what the agents of a gate report comes at an interval, and is not a stream",
    ),
    "replay": ConnectionKind(why_no_sessions="a recording does not change"),
    "capture": ConnectionKind(why_no_sessions="what was collected by hand does not change"),
    "run": ConnectionKind(why_no_sessions="what a training run wrote does not change"),
}


def forms(*, are_live: bool = False) -> str:
    """The accepted forms of X: `local, demo, …, or FILE.toml`; or only those that can be contacted now."""
    every = [kind.form for kind in (*KINDS, HYPERPOD, FILE) if kind.is_live or not are_live]
    return f"{', '.join(every[:-1])}, or {every[-1]}"


NO_CLUSTER = f"no cluster to validate; say which: --cluster {forms()}; or which training run to evaluate: --run PATH"
