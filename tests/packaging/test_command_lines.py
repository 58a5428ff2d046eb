"""Answers to right and wrong command lines: one line with what was observed, and what to type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.forked import Forked, forking
from tests.builders.wheel import Installed

FILES = {
    "empty.toml": "",
    "reports/summary.md": "# A summary\n",
    "hosts.txt": "gpu001\ngpu002\n",
    "broken.toml": "x = [",
    "group.toml": "[group]\nnodes = 'gpu001'\n",
    "key.toml": "[treshold.shm]\nminimum_gib = 1\n",
    "number.toml": "[thresholds.shm]\nminimun_gib = 1\n",
    "check.toml": "[disabled.'gpu.no_xidd']\nreason = 'x'\nuntil = 2099-01-01\n",
    "forever.toml": "[disabled.'gpu.no_xid']\nreason = 'x'\n",
    "pass.toml": "[verdicts.'gpu.no_xid']\nfail = 'pass'\n",
}

UNSEEN = "x" * 300  # a name too long to stat: it raises like a folder closed to the caller
WRITTEN = ("--record", "--results", "--report", "--history", "--save-baseline", "--junitxml", "--html")
READ = ("--policy", "--baseline")
DEMO = ("check", "demo")
RIGHT: list[tuple[list[str], str]] = [
    (["--version"], "clusterproof 0."),
    (["checks", "-m", "prolog and gpu"], "gpu.no_xid  "),
    (["explain", "no_xid"], "  by hand         journalctl -k -b | grep -E 'NVRM|nvidia|amdgpu'\n"),
    (["explain", "xid:79"], "Xid 79: GPU has fallen off the bus\n"),
    (["--help"], "10 nothing failed, but something could not be measured"),
    (["help"], "10 nothing failed, but something could not be measured"),
    (["version"], "clusterproof 0."),
    (["--help-all"], "clusterproof: which nodes:"),
    (["doctor"], "ok   local"),
]
WRONG: list[tuple[list[str], str]] = [
    ([], "clusterproof check local                 check this machine"),
    (["help", "chek"], "no command is called 'chek' (did you mean check?)"),
    (["check"], "no cluster to validate; say which"),
    (["chek", "demo"], "no command is called 'chek' (did you mean check?)"),
    (["demo"], "'demo' is a cluster; expected clusterproof check demo"),
    (["ssh:gpu001"], "'ssh:gpu001' is a cluster; expected clusterproof check ssh:gpu001"),
    (["--clutser", "demo"], "--clutser is not an option (did you mean --cluster?)"),
    (["new", "mycheck"], "no command is called 'new'; clusterproof --help lists them"),
    (["explain"], "the following arguments are required"),
    (["explain", "no_xidd"], "no check is called 'no_xidd' (did you mean no_xid?)"),
    (["explain", "xid:abc"], "an Xid is xid:79"),
    (["checks", "-m", "gpu and"], "expected marks with and, or, not and brackets"),
    (["checks", "--nope"], "unrecognized arguments: --nope"),
    (["doctor", "x"], "unrecognized arguments: x"),
    (["init", "a", "b"], "unrecognized arguments: b"),
    (["init", "empty.toml"], "Not a directory; expected a folder that may be written"),
    (["history", "nowhere"], "unrecognized arguments: nowhere (did you mean --cluster nowhere?)"),
    (["history", "--runz", "3"], "unrecognized arguments: --runz 3 (did you mean --runs?)"),
    (["watch"], "nothing to watch; expected clusterproof watch X, or --job ID"),
    (["watch", "demo"], "a recording does not change; expected local, nodes by ssh"),
    (["watch", "local", "--cluster", "local"], "expected one of them"),
    (["watch", "local", "--evry", "1s"], "--evry 1s (did you mean --every?)"),
    (["manifest"], "the following arguments are required: --from"),
    (["manifest", "--from", "shh:x"], "did you mean ssh:?"),
    (["check", ""], "is empty"),
    (["check", "nonsense"], "for a host say ssh:nonsense"),
    (["check", "nonsense", "--region", "us-wset-2"], "no AWS region is called 'us-wset-2' (did you mean us-west-2?)"),
    (["check", "shh:gpu001"], "is of no known kind (did you mean ssh:?)"),
    (["check", "kubernetes:prod"], "did you mean k8s:?"),
    (["check", "hyperpod:prod"], "did you mean the cluster's NAME alone?"),
    (["check", "gpu001,gpu002"], "did you mean ssh:gpu001,gpu002?"),
    (["check", "ssh:"], "an empty nodeset; expected names, such as gpu[001-016,020]"),
    (["check", "ssh:gpu001", "gpu002"], "expected one X, such as ssh:gpu001,gpu002"),
    (["check", "ssh:gpu001", "ssh:gpu002", "--sudo"], "expected one X, such as ssh:gpu001,gpu002"),
    (["check", "ssh://gpu001"], "is a URL (did you mean ssh:gpu001?)"),
    (["check", "ubuntu@gpu[001-002]"], "did you mean ssh:ubuntu@gpu[001-002]?"),
    (["check", "cluster.yaml"], "is not an inventory; expected FILE.toml (clusterproof init writes one to begin with)"),
    (["check", "hosts.txt"], "(clusterproof init writes one to begin with; capture:FILE reads what commands printed)"),
    (
        ["check", "arn:aws:sagemaker:us-west-2:123456789012:cluster/x"],
        "is no HyperPod cluster's ARN; expected arn:aws:",
    ),
    (["check", "ssh:gpu[001-"], "a bracket without its partner"),
    (["check", "ssh:gpu[5-1]"], "expected the smaller number first"),
    (["check", "ssh:gpu001:ssh"], "'ssh' is not a port; expected ssh:[user@]NODESET[:port]"),
    (["check", "ssh:gpu001:99999"], "'99999' is not a port"),
    (["check", "ec2:"], "it names no instance; expected ec2:tag:Key=Value"),
    (["check", "ec2:i-zzz"], "'i-zzz' is not an instance id"),
    (["check", "asg:"], "names no Auto Scaling group; expected asg:NAME"),
    (["check", "replay:"], "names no folder; expected replay:DIR"),
    (["check", "replay:/nowhere"], "expected a folder that --record wrote"),
    (["check", "capture:/nowhere"], "no such file or folder"),
    (["check", "nowhere.toml"], "No such file or directory; expected an inventory"),
    (["check", "empty.toml"], "has no nodes; expected a [[group]] with nodes"),
    (["check", "broken.toml"], "is not TOML"),
    (["check", "group.toml"], "group is a table; expected a list of tables, [[group]]"),
    (["--run", "nowhere"], "nowhere: No such file or directory; expected a file that can be read"),
    (
        ["--run", "reports"],
        "none of its files (summary.md) has a form that is known; expected a log, trace, table, dump",
    ),
    ([*DEMO, "--nodez", "gpu001"], "--nodez is not an option (did you mean --nodes?)"),
    ([*DEMO, "--nodes", "gpu[1-"], "--nodes"),
    ([*DEMO, "--nodes", "gpu099"], "gpu099 is not in demo"),
    ([*DEMO, "--exclude", "gpu[001-016]"], "no node of demo is left"),
    ([*DEMO, "--expect", "gpus"], "'gpus' is not NAME=NUMBER; expected gpus=8,efa=32"),
    ([*DEMO, "--expect", "gpu=8"], "did you mean gpus"),
    ([*DEMO, "--fanout", "0"], "--fanout is 0; expected at least 1"),
    ([*DEMO, "--fanout", "many"], "--fanout is 'many'; expected a whole number"),
    ([*DEMO, "--polcy", "x.toml"], "--polcy is not an option (did you mean --policy?)"),
    ([*DEMO, "--connect-timeout", "0"], "--connect-timeout is 0; expected at least 0.1"),
    ([*DEMO, "--connect-timeout", "inf"], "--connect-timeout is inf; expected at most 86400 s, a day"),
    ([*DEMO, "--probe-timeout", "1e10"], "--probe-timeout is 1e+10; expected at most 86400 s, a day"),
    ([*DEMO, "--slurm-wait", "inf"], "--slurm-wait is inf; expected at most 86400 s, a day"),
    ([*DEMO, "--pair-timeout", "inf"], "--pair-timeout is inf; expected at most 86400 s, a day"),
    ([*DEMO, "--meter-options", "'x"], "No closing quotation; expected words as a shell takes them"),
    ([*DEMO, "--host-root", "here"], "expected a folder that begins with /"),
    ([*DEMO, "--in-container", "docker run -i x"], "--in-container without -m job: expected both"),
    ([*DEMO, "-m", "job or host", "--in-container", "x"], "--in-container without -m job: expected both"),
    ([*DEMO, "-m", "job", "--in-container", " "], "--in-container ' ' would run on the node itself"),
    (
        [*DEMO, "-m", "job", "--in-container", "docker run x\n"],
        "would run on the node itself; expected a command in one",
    ),
    ([*DEMO, "-m", "job", "--in-container", "x"], "--in-container is for local and ssh, and demo is neither"),
    (
        [*DEMO, "-m", "job", "--srun-options", "--container-image=x"],
        "begins a container by srun, and the nodes of demo are not asked by it; expected --via controller",
    ),
    ([*DEMO, "--since", "yesterday"], "expected boot, a time span such as 90m, 24h or 2d"),
    (
        [*DEMO, "--via", "controller"],
        "is for clusters of Slurm, HyperPod and Kubernetes, and demo is none",
    ),
    ([*DEMO, "--k8s-every", "5"], "--k8s-every is 5; expected a second or more, with --via agents"),
    ([*DEMO, "--incomplete", "maybe"], "--incomplete is 'maybe'; expected gate, ignore or fail"),
    (["--cluster"], "no cluster to validate; say which"),
    ([*DEMO, "--log-cursor", "x"], "expected BOOT_ID:SEQUENCE:SECONDS"),
    ([*DEMO, "--fsx-window", "5s"], "expected from 15m to 15d"),
    ([*DEMO, "--ssm-output", "bucket"], "expected s3://BUCKET"),
    ([*DEMO, "--bundle", "b.zip"], "expected a file that ends in .tar.zst"),
    ([*DEMO, "--bundle", "link.tar.zst"], "--bundle link.tar.zst is not a regular file; expected a new file"),
    ([*DEMO, "--history=h.sqlite", "--redact"], "expected one of the two"),
    (
        [*DEMO, "--report", "empty.toml/reports"],
        "--report empty.toml/reports: Not a directory; expected a place that may be written",
    ),
    ([*DEMO, "--report", "empty.toml"], "--report empty.toml: Not a directory; expected a place that may be written"),
    ([*DEMO, "--results", "."], "--results .: Is a directory; expected a place that may be written"),
    ([*DEMO, "--record", "empty.toml/record"], "expected a place that may be written"),
    ([*DEMO, "--results", "empty.toml/r.jsonl"], "expected a place that may be written"),
    ([*DEMO, "--report", "r", "--no-report"], "--report with --no-report: expected one of the two"),
    (
        [*DEMO, "--report", "/proc/x"],
        "--report /proc/x: No such file or directory; expected a place that may be written",
    ),
    *(([*DEMO, option, UNSEEN], "expected a place that may be written") for option in WRITTEN),
    *(([*DEMO, option, UNSEEN], "expected") for option in READ),
    (["check", UNSEEN], "is of no known kind"),
    (["check", f"{UNSEEN}/cluster.toml"], "File name too long; expected an inventory"),
    (["check", f"replay:{UNSEEN}"], "expected a folder that --record wrote"),
    (["--run", UNSEEN], "File name too long; expected a file that can be read"),
    (["init", UNSEEN], "File name too long; expected a folder that may be written"),
    ([*DEMO, "--baseline", "nowhere.json"], "no such file; expected one that --save-baseline wrote"),
    ([*DEMO, "--baseline", "empty.toml"], "JSON"),
    ([*DEMO, "--resume", "key.toml"], "key.toml"),
    (["history", "--runs", "x"], "'x'; expected from 1 to 1000000"),
    (["case", "--since", "7d", "--cluster", "demo"], "--cluster is for one job: with --since no node is asked"),
    (["accept", "local", "--sign", "nowhere"], "--sign 'nowhere'"),
    ([*DEMO, "--notify", "slak://x"], "is not a URL that Apprise takes"),
    ([*DEMO, "--policy", "nowhere.toml"], "No such file or directory; expected a policy"),
    ([*DEMO, "--policy", "key.toml"], "'treshold' is not a known key (did you mean thresholds?)"),
    ([*DEMO, "--policy", "number.toml"], "there is no 'shm.minimun_gib' (did you mean shm.minimum_gib?)"),
    ([*DEMO, "--policy", "check.toml"], "'gpu.no_xidd' is not a check (did you mean gpu.no_xid?)"),
    ([*DEMO, "--policy", "forever.toml"], "there is no until; expected a day, such as 2026-12-31"),
    ([*DEMO, "--policy", "pass.toml"], "fail is read as 'pass'; expected concern"),
    ([*DEMO, "-m", "no_such_mark"], "no_such_mark"),
    ([*DEMO, "-m", "prologg"], "no mark is called 'prologg' (did you mean prolog?)"),
    ([*DEMO, "-m", "gpu and"], "ERROR: -m 'gpu and': expected not OR left parenthesis OR identifier; got end of input"),
    ([*DEMO, "no_such_file.py"], "file or directory not found: no_such_file.py"),
]
CHOOSES_NOTHING: list[tuple[list[str], str]] = [
    ([*DEMO, "-k", "no_such_check"], "-k 'no_such_check' chooses nothing; clusterproof checks"),
    ([*DEMO, "-k", "no_xidd"], "-k 'no_xidd' chooses nothing (did you mean no_xid?)"),
]
CASES = [
    *((arguments, 0, answer) for arguments, answer in RIGHT),
    *((arguments, 4, answer) for arguments, answer in WRONG),
    *((arguments, 5, answer) for arguments, answer in CHOOSES_NOTHING),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that each have one defect."""
    made = tmp_path_factory.mktemp("wrong")
    (made / "reports").mkdir()
    (made / "link.tar.zst").symlink_to("nowhere")
    for name, text in FILES.items():
        (made / name).write_text(text)
    return made


@pytest.fixture(scope="module")
def forked(installed: Installed, folder: Path) -> Iterator[Forked]:
    with forking(installed, folder) as parent:
        yield parent


@pytest.mark.parametrize(("arguments", "exit_code", "words"), CASES, ids=[" ".join(case[0]) for case in CASES])
def test_a_command_line_answers_in_one_clear_line(
    installed: Installed, forked: Forked, folder: Path, arguments: list[str], exit_code: int, words: str
) -> None:
    ran = forked.run(folder, *arguments) if exit_code else installed.run(folder, "clusterproof", *arguments)
    assert (ran.returncode, words in ran.stdout + ran.stderr) == (exit_code, True), ran.stdout + ran.stderr
    assert "usage: pytest" not in ran.stderr
    assert "Traceback (most" not in ran.stdout + ran.stderr


@pytest.mark.parametrize("arguments", [arguments for arguments, _ in WRONG[::12]], ids=" ".join)
def test_a_fork_answers_as_a_start_does(
    installed: Installed, forked: Forked, folder: Path, arguments: list[str]
) -> None:
    begun, started = forked.run(folder, *arguments), installed.run(folder, "clusterproof", *arguments)
    assert (begun.returncode, begun.stdout, begun.stderr) == (started.returncode, started.stdout, started.stderr)


def test_no_library_warns_in_front_of_an_answer(installed: Installed, folder: Path) -> None:
    arguments = (*DEMO, "-k", "gpu_answers", "--no-report", "--notify", "json://127.0.0.1:9/")
    ran = installed.run(folder, "clusterproof", *arguments)
    assert (ran.returncode, "DeprecationWarning" in ran.stdout + ran.stderr) == (1, False), ran.stdout + ran.stderr
