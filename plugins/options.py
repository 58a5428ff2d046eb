"""The suite's command line: every option in one table, grouped for `--help`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from clusterproof.plugins.facts.window import window
from clusterproof.plugins.inventory import forms
from clusterproof.plugins.probe.reading import NO_CURSOR


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its flag, its words for `--help`, and what argparse needs to know besides."""

    flag: str
    words: str
    more: dict[str, Any] = field(default_factory=dict)


GROUPS: dict[str, tuple[Option, ...]] = {
    "clusterproof: which nodes": (
        Option("--cluster", f"what to validate: {forms()}", {"metavar": "X"}),
        Option("--nodes", "only these nodes of it, folded: gpu[001-016,020]", {"metavar": "NODESET"}),
        Option("--exclude", "but not these", {"metavar": "NODESET"}),
        Option(
            "--instance-type",
            "the instance type of every node, where nothing else tells it",
            {"metavar": "TYPE"},
        ),
        Option(
            "--expect",
            "what every node must have, e.g. gpus=8,efa=32; outranks the instance type",
            {"metavar": "K=N,…"},
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
            "default; HyperPod: controller above 32 nodes), or ssh:[user@]HOST[:port] (one srun on that log-in node)",
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
            "also the nodes that Slurm starts nothing on: they are visited over ssh",
            {"action": "store_true"},
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
            "what incomplete checks do to the exit code: gate (6, the default), ignore (0) or fail (1)",
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
            "of the kernel log only what came after this counts (BOOT_ID:SEQUENCE:SECONDS, as the evidence tells it); "
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
    "clusterproof: who is told": (
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


def add_options(parser: pytest.Parser, groups: Mapping[str, Iterable[Option]] = GROUPS) -> None:
    """Declare every option to pytest."""
    for title, options in groups.items():
        group = parser.getgroup(title)
        for option in options:
            group.addoption(option.flag, help=option.words, **option.more)


def check_options(option: Any) -> None:
    """Refuse numbers that make no sense. Raises pytest.UsageError."""
    for flag, value, least in (
        ("--fanout", option.fanout, 1),
        ("--connect-timeout", option.connect_timeout, 0.1),
        ("--probe-timeout", option.probe_timeout, 0.1),
        ("--answer-timeout", option.answer_timeout, 0.1),
        ("--ssm-rate", option.ssm_rate, 0.1),
        ("--slurm-wait", option.slurm_wait, 1),
    ):
        if value is not None and not value >= least:
            raise pytest.UsageError(f"{flag} is {value:g}; expected at least {least:g}")
    if option.ssm_output and not option.ssm_output.startswith("s3://"):
        raise pytest.UsageError(f"--ssm-output is {option.ssm_output!r}; expected s3://BUCKET or s3://BUCKET/PREFIX")
    window_minutes(option.fsx_window)
    log_cursor(option.log_cursor)
    if not option.host_root.startswith("/"):
        raise pytest.UsageError(f"--host-root is {option.host_root!r}; expected a folder that begins with /")
    _check_history(option)
    if option.bundle is not None and not option.bundle.endswith(".tar.zst"):
        raise pytest.UsageError(f"--bundle is {option.bundle!r:.200}; expected a file that ends in .tar.zst")
    if option.cloudwatch is not None:
        from clusterproof.reports.cloudwatch import check_namespace

        check_namespace(option.cloudwatch)
    try:
        window(option.since)
    except ValueError as why:
        raise pytest.UsageError(str(why)) from None


def check_root(config: pytest.Config) -> None:
    """Refuse a run that pytest began in another folder than the one it is started in. Raises pytest.UsageError.

    Pytest looks for its configuration before it knows our options: the file of `--history FILE`, once it is there, is
    a test to it, by whose folder it goes. Then what pytest.toml says here does not hold, and anything may be collected.
    """
    here = config.invocation_params.dir / "pytest.toml"
    are_named = config.args_source is pytest.Config.ArgsSource.ARGS  # the tests: then none are looked for
    if here.is_file() and config.inipath is None and config.option.inifilename is None and not are_named:
        raise pytest.UsageError(
            f"pytest took a path of the command line for a test and did not read {here}; "
            "write every option that names a file elsewhere with an equals sign, as --history=FILE"
        )


def _check_history(option: Any) -> None:
    """Refuse what has no meaning with a history. Raises pytest.UsageError."""
    if option.history and option.redact:
        raise pytest.UsageError(
            "--history with --redact: redacted names differ from run to run; expected one of the two"
        )


def window_minutes(text: str) -> int:
    """The minutes of `--fsx-window`. Raises pytest.UsageError."""
    number, unit = text[:-1], text[-1:]
    minutes = int(number) * _MINUTES[unit] if _IS_NUMBER(number) and unit in _MINUTES else 0
    if not _LEAST_WINDOW <= minutes <= _MOST_WINDOW:
        raise pytest.UsageError(f"--fsx-window is {text!r:.40}; expected from 15m to 15d, as 90m, 12h or 2d")
    return minutes


def log_cursor(text: str) -> tuple[str, int, float]:
    """The cursor of `--log-cursor`. Raises pytest.UsageError."""
    if not text:
        return NO_CURSOR
    told = _CURSOR.fullmatch(text)
    if not told:
        raise pytest.UsageError(f"--log-cursor is {text!r:.80}; expected BOOT_ID:SEQUENCE:SECONDS")
    return told[1], int(told[2]), float(told[3])


_CURSOR = re.compile(r"([0-9a-f-]{1,64}):(-1|[0-9]{1,18}):([0-9]{1,12}(?:\.[0-9]{1,9})?)")
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
_LEAST_WINDOW = 15  # minutes: the rule of sustained load looks at so many together
_MOST_WINDOW = 15 * 24 * 60  # CloudWatch keeps points of one minute so long
_IS_NUMBER = re.compile(r"[0-9]{1,6}").fullmatch
