"""The command lines of `clusterproof COMMAND`, and of all of them as one: for completion and the man page."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from clusterproof.plugins.core.kinds import forms
from clusterproof.plugins.core.one_line import OneLineParser
from clusterproof.plugins.suite import flags, flags_of_perf
from clusterproof.plugins.suite.flags import Option

SHELLS = ("bash", "zsh", "fish")
# Pytest's own options that are of use with ours.
OF_PYTEST = (
    Option("-m", "checks by occasion, subsystem or owner: prolog, gpu, 'gpu and not perf', …", {"metavar": "MARKS"}),
    Option("-k", "checks by name", {"metavar": "NAME"}),
    Option("-x", "stop at the first failure", {"action": "store_true"}),
    Option("-n", "processes to run the checks in (pytest-xdist)", {"metavar": "N"}),
    Option("-q", "say less", {"action": "store_true"}),
    Option("-v", "say more", {"action": "store_true"}),
    Option("--lf", "only what failed in the last run", {"action": "store_true"}),
    Option("--collect-only", "list the checks, and run none", {"action": "store_true"}),
    Option("--junitxml", "a JUnit file with a case for each check and node", {"metavar": "FILE"}),
    Option("--html", "a page of pytest-html", {"metavar": "FILE"}),
)


def checks() -> argparse.ArgumentParser:
    """`clusterproof checks`."""
    parser = OneLineParser(prog="clusterproof checks", description="The packaged checks, a line for each.")
    parser.add_argument("-m", metavar="MARKS", default="", help="those that `-m MARKS` would choose: 'prolog and gpu'")
    return parser


def explain() -> argparse.ArgumentParser:
    """`clusterproof explain`."""
    parser = OneLineParser(
        prog="clusterproof explain",
        description="What a check or an Xid means, what is said and when, what to do then, and whose it is: offline.",
    )
    parser.add_argument(
        "name",
        nargs="+",
        metavar="CHECK",
        help="as reports have it: gpu.no_xid; or no_xid, or test_no_xid; or xid:79",
    )
    return parser


def doctor() -> argparse.ArgumentParser:
    """`clusterproof doctor`."""
    return OneLineParser(
        prog="clusterproof doctor",
        description="What can be reached from here, and what is missing for the rest. Nothing is asked over a network.",
        allow_abbrev=False,
    )


def init() -> argparse.ArgumentParser:
    """`clusterproof init`."""
    parser = OneLineParser(
        prog="clusterproof init",
        description="Writes cluster.toml and clusterproof.toml with comments. Nothing that is there is overwritten.",
        allow_abbrev=False,
    )
    parser.add_argument("folder", nargs="?", default=".", metavar="DIR", help="where to (default: here)")
    return parser


def manifest() -> argparse.ArgumentParser:
    """`clusterproof manifest`."""
    parser = OneLineParser(
        prog="clusterproof manifest",
        description="Writes the golden manifest of a machine known to be good, for --policy golden.toml -m ami.",
        epilog="Any other option of clusterproof, such as --nodes, --region or --sudo, may follow.",
        allow_abbrev=False,
    )
    parser.add_argument("--from", "--cluster", dest="source", required=True, metavar="X", help="what --cluster takes")
    parser.add_argument("--out", default="", metavar="FILE", help="where to write it (default: print it)")
    return parser


def watch() -> argparse.ArgumentParser:
    """`clusterproof watch`."""
    parser = OneLineParser(
        prog="clusterproof watch",
        description="Samples the nodes of a cluster while it works, follows their kernel logs, evaluates the same "
        "checks, and says what changes. Ends by SIGINT or SIGTERM, or after --for.",
        allow_abbrev=False,
        fromfile_prefix_chars="@",  # for URLs that hold passwords
    )
    words = "what to watch: local, nodes by ssh or of Kubernetes, slurm:job:ID, or FILE.toml"
    parser.add_argument("x", nargs="?", metavar="X", help=words)
    parser.add_argument("--cluster", metavar="X", help="the same")
    words = "a Slurm job, or NAMESPACE/NAME of a Kubernetes job: until it ends; its report is left in --record"
    parser.add_argument("--job", metavar="ID", help=words)
    parser.add_argument("--steps", action="append", default=[], metavar="PATH", help="of a job: its own logs of steps")
    parser.add_argument("--nodes", default="", metavar="NODESET", help="only these nodes of it")
    parser.add_argument("--exclude", default="", metavar="NODESET", help="but not these")
    parser.add_argument("--every", default="10", metavar="S", help="seconds between samples (default 10)")
    parser.add_argument("--for", dest="for_s", metavar="TIME", help="how long: 90s, 30m, 24h (default: until stopped)")
    parser.add_argument("--record", metavar="DIR", help="keep samples, evidence and changes, for --cluster replay:DIR")
    parser.add_argument("--listen", metavar="[HOST]:PORT", help="answer Prometheus there (:9188: this machine alone)")
    parser.add_argument("--textfile", metavar="FILE.prom", help="the same in a file that node_exporter reads")
    words = (
        "tell of what changes: a URL of Apprise's, or a program, which has it on its input; may be given several times"
    )
    parser.add_argument("--notify", action="append", default=[], metavar="URL|COMMAND", help=words)
    parser.add_argument("--remind", metavar="TIME", help="notify again of what stays open so long (4h; default: never)")
    words = "ask for this URL of a dead man's switch as long as ticks are completed, once a minute at most"
    parser.add_argument("--heartbeat", metavar="URL", help=words)
    parser.add_argument("--policy", metavar="FILE", help="the site's own numbers, expectations and exceptions")
    parser.add_argument("--instance-type", default="", metavar="TYPE", help="where nothing else reports it")
    parser.add_argument("--expect", default="", metavar="K=N,…", help="what every node must have, e.g. gpus=8,efa=32")
    parser.add_argument("--region", default="", metavar="REGION", help="the AWS region")
    parser.add_argument("--profile", default="", metavar="NAME", help="the AWS profile")
    parser.add_argument("--via", default="", metavar="WAY", help="of Slurm: nodes (by ssh), or ssh:[user@]HOST")
    parser.add_argument("--fanout", type=int, default=64, metavar="N", help="how many to connect to at once (64)")
    parser.add_argument("--connect-timeout", type=float, default=15.0, metavar="S", help="to reach a node (15)")
    parser.add_argument("--accept-new-host-keys", action="store_true", help="on trust, for this watch only")
    parser.add_argument("--sudo", action="store_true", help="run under sudo -n, for what only root may read")
    parser.add_argument("--host-root", default="/", metavar="DIR", help="read the host under this folder of the node")
    parser.add_argument("--k8s-namespace", default="", metavar="NAME", help="for the pods (default clusterproof)")
    parser.add_argument("--k8s-image", default="", metavar="IMAGE", help="one with Python, where nodes have none")
    return parser


def gate() -> argparse.ArgumentParser:
    """`clusterproof gate`."""
    parser = OneLineParser(
        prog="clusterproof gate",
        usage="clusterproof gate run X [OPTION...] | agent [OPTION...] | remove X",
        description="A gate of Kubernetes: run evaluates what agents report and writes it to the nodes, agent "
        "reports what is on its node; and what removes it: remove takes its condition and taints from all nodes.",
        epilog="Any option of clusterproof check may follow gate run X, such as --k8s-gate taint.",
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=("run", "agent", "remove"), help="what to do")
    parser.add_argument("x", nargs="?", metavar="X", help="k8s:CONTEXT[/SELECTOR], k8s:in-cluster or eks:NAME")
    parser.add_argument("--every", type=float, default=60.0, metavar="S", help="seconds between reports, alike in both")
    parser.add_argument("--probe-timeout", type=float, default=5.0, metavar="S", help="of agent: for one collector")
    parser.add_argument("--region", default="", metavar="REGION", help="the AWS region")
    parser.add_argument("--profile", default="", metavar="NAME", help="the AWS profile")
    return parser


def completion() -> argparse.ArgumentParser:
    """`clusterproof completion`."""
    parser = OneLineParser(
        prog="clusterproof completion",
        description='Prints what completes words of clusterproof in a shell: eval "$(clusterproof completion bash)".',
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell")
    return parser


def help_() -> argparse.ArgumentParser:
    """`clusterproof help`."""
    parser = OneLineParser(prog="clusterproof help", description="The options of a command.", add_help=False)
    names = [
        "check",
        "checks",
        "completion",
        "doctor",
        "explain",
        "gate",
        "history",
        "init",
        "manifest",
        "version",
        "watch",
    ]
    parser.add_argument(
        "command", nargs="?", choices=names, metavar="COMMAND", help="which command (default: an overview)"
    )
    return parser


def version() -> argparse.ArgumentParser:
    """`clusterproof version`."""
    return OneLineParser(prog="clusterproof version", description="The version.", add_help=False)


def check() -> argparse.ArgumentParser:
    """`clusterproof check`: pytest reads it, and this describes it."""
    parser = OneLineParser(
        prog="clusterproof check",
        usage="clusterproof check X [OPTION...]",
        description="Validates the nodes of X; pytest --cluster X is the same.",
        add_help=False,
    )
    parser.add_argument("cluster", metavar="X", help=f"what to validate: {forms()}")
    _add(parser, "often used options of pytest", OF_PYTEST)
    for title, options in {**flags.GROUPS, **flags_of_perf.GROUPS}.items():
        of_run = [option for option in options if option.flag not in ("--cluster", "--run")]
        if of_run:
            _add(parser, title.removeprefix("clusterproof: "), of_run)
    return parser


def every() -> Iterator[argparse.ArgumentParser]:
    """Each command's, in the order in which help has them."""
    from clusterproof.reports.history.command import parser as history

    yield from (check(), checks(), explain(), doctor(), init(), history(), watch(), gate(), manifest())
    yield from (completion(), help_(), version())


def whole() -> argparse.ArgumentParser:
    """`clusterproof` with all its commands."""
    parser = argparse.ArgumentParser(
        prog="clusterproof",
        description="Proves a GPU cluster fit for training. Nothing on a node is changed, and nothing passes without "
        "evidence.",
        epilog="exit codes: 0 nothing failed, 1 a check failed, 2 interrupted, 3 internal error, 4 bad command line or "
        "inventory, 5 nothing was checked, 10 nothing failed, but something could not be measured, 11 --k8s-gate "
        "could not write all that it had to",
    )
    parser.add_argument("--help-all", action="store_true", help="every option, pytest's own too")
    parser.add_argument("--version", action="store_true", help="the version")
    parser.add_argument("--run", metavar="PATH", help="evaluate a training run by its traces, logs or dumps")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=argparse.ArgumentParser)
    for one in every():
        name = one.prog.rpartition(" ")[2]
        commands.add_parser(name, parents=[one], add_help=not one.add_help, usage=one.usage, help=one.description)
    return parser


def _add(parser: argparse.ArgumentParser, title: str, options: Sequence[Option]) -> None:
    group = parser.add_argument_group(title)
    for option in options:
        group.add_argument(option.flag, help=option.words.replace("%", "%%"), **option.more)
