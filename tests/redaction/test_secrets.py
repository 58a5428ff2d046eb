"""`--redact`, tested by planting secrets of every kind in recordings, captures, inventory and policy."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import zstandard

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached, load, to_json
from clusterproof.plugins.evidence.recording import write_cluster, write_control_plane, write_node
from clusterproof.plugins.redaction.kinds import ValueKind, collectors, schema_of
from clusterproof.plugins.redaction.redact import Redaction
from tests.builders.runs import ALONE_OR_NOT, ROOT, Runs
from tests.redaction.planted import SECRETS, SENTENCES

EVERY = [secret for _, secret in SECRETS]
IN_PLACES = [secret for secret in EVERY if secret != "8.8.4.21"]  # where a version is expected, it is one


def survivors(written: str, secrets: list[str]) -> list[str]:
    """The secrets in a text, in any case, or as encoded in JSON and URLs."""
    small = written.lower()
    surviving = [secret for secret in secrets if secret.lower() in small or json.dumps(secret)[1:-1].lower() in small]
    return [*surviving, *(["zorg"] if "zorg" in small else [])]


@pytest.mark.long
@pytest.mark.parametrize("sentence", SENTENCES)
def test_no_secret_survives_in_a_text(sentence: str) -> None:
    redaction = Redaction(Cluster("zcluster", "ssh", (Target("gpu001"),)))
    shown = {
        (kind, secret): redaction.text(sentence.replace("{{", "{").replace("}}", "}").replace("{}", secret))
        for kind, secret in SECRETS
    }
    assert {pair: text for pair, text in shown.items() if survivors(text, [pair[1]])} == {}


GLUED = (
    *("{}.sh", "{}.service", "{}.conf", "{}_1", "{}-1", "{}.2", "{}x", "{}~", "_{}_", "v{}", "x{}", "host{}", "n-{}"),
    *("a{}b", "ip{}", "user@{}", "zalice@{}:22", "ssh://{}", "{}:22", "{}/24", "{}%eth0", "::ffff:{}", "1.2.3+{}"),
    *("1.2.3-{}", "nvme0n1{}", "/dev/{}", "lib{}.so", "é{}", "[{}]", "k={}"),
)
SMALL = ("54.23.11.9", "8.8.4.21")  # numbers that may also be versions


@pytest.mark.parametrize("glued", GLUED)
def test_no_secret_survives_with_something_glued_to_it(glued: str) -> None:
    redaction = Redaction(Cluster("zcluster", "ssh", (Target("gpu001"),)))
    secrets = [*EVERY, *SMALL, "192.168.4.77", "100.64.3.7", "203.0.113.5"]
    shown = {secret: redaction.text(f"lost {glued.format(secret)} again") for secret in secrets}
    assert {secret: text for secret, text in shown.items() if survivors(text, [secret])} == {}
    shown = {secret: redaction.version(glued.format(secret)) for secret in secrets if secret not in SMALL}
    assert {secret: text for secret, text in shown.items() if survivors(text, [secret])} == {}


@pytest.mark.parametrize("before", ["::ffff:", "[::ffff:", "64:ff9b::", "::", "addr:::ffff:"])
@pytest.mark.parametrize("behind", ["", "]:22", "%eth0", ".", ", refused"])
def test_no_number_survives_of_an_address_in_an_address_of_ipv6(before: str, behind: str) -> None:
    redaction = Redaction(Cluster("zcluster", "ssh", (Target("gpu001"),)))
    assert "7.13.211" not in redaction.text(f"to {before}10.7.13.211{behind}")


@pytest.mark.parametrize("address", ["10-7-13-211", "172-31-9-14", "192-168-4-77"])
@pytest.mark.parametrize("glued", ["{}", "pod {}: lost", "{}.train.pod", "user@{}", "{}:22"])
def test_no_address_survives_as_it_stands_in_names_of_hosts(address: str, glued: str) -> None:
    redaction = Redaction(Cluster("zcluster", "ssh", (Target("gpu001"),)))
    assert address not in redaction.text(glued.format(address))


@pytest.mark.parametrize("address", SMALL)
@pytest.mark.parametrize("glued", ["user@{}", "zalice@{}:22", "ssh://{}", "{}:22", "{}/24", "{}%eth0", "{}.service"])
def test_small_numbers_where_a_version_is_expected_are_an_address_where_a_host_stands(address: str, glued: str) -> None:
    redaction = Redaction(Cluster("zcluster", "ssh", (Target("gpu001"),)))
    assert address not in redaction.version(glued.format(address))


def test_two_secrets_stay_two() -> None:
    redaction = Redaction(Cluster("zcluster", "ssh", (Target("gpu001"),)))
    shown = [redaction.text(f"lost {secret} again") for _, secret in SECRETS]
    assert len(set(shown)) == len(SECRETS)


def values_of(place: ValueKind, secrets: Iterator[str]) -> object:
    """A collector's value with a secret in every declared place, and beside each."""
    if not place.within:
        return next(secrets)
    within = {key.replace("*", next(secrets)): values_of(entry, secrets) for key, entry in place.within.items()}
    return {**within, next(secrets): 77, "undeclared": next(secrets), "list": [next(secrets), [next(secrets)]]}


def evidence(name: str, secrets: Iterator[str]) -> NodeEvidence:
    """The evidence of a node with a secret in every place."""
    collected = {
        collector: Collected(Status.READ, values_of(schema_of(collector), secrets), next(secrets))
        for collector in collectors()
    }
    return NodeEvidence(
        name, {**collected, next(secrets): Collected(Status.BROKE, detail=next(secrets))}, detail=next(secrets)
    )


@pytest.mark.long
def test_no_secret_survives_in_any_place_of_the_evidence() -> None:
    secrets = cycle(IN_PLACES)
    nodes = []
    for number in range(len(IN_PLACES)):  # so that each secret gets to every place
        nodes.append(evidence(f"zn{number}", secrets))
        next(secrets)
    redaction = Redaction(Cluster("zcluster", "ssh", tuple(Target(node_evidence.node) for node_evidence in nodes)))
    kept: list[NodeEvidence] = []
    with redaction.rewriting(kept.append) as learn:
        for node_evidence in nodes:
            learn(node_evidence)
    written = json.dumps([to_json(node_evidence) for node_evidence in kept], ensure_ascii=False)
    assert survivors(written, IN_PLACES) == []


def planted(value: Any, secrets: Iterator[str]) -> Any:
    """The same value with a secret appended to each text, and a secret as a further key and entry."""
    if isinstance(value, str):
        return f"{value} {next(secrets)}"
    if isinstance(value, list):
        return [planted(entry, secrets) for entry in value]
    if isinstance(value, dict):
        return {**{key: planted(entry, secrets) for key, entry in value.items()}, next(secrets): next(secrets)}
    return value


def lines(secrets: Iterator[str]) -> list[list[object]]:
    """A kernel log of events, each with secrets in it."""
    return [[float(number), sentence.replace("{}", next(secrets))] for number, sentence in enumerate(SENTENCES * 12)]


def demo(secrets: Iterator[str]) -> Iterator[NodeEvidence]:
    """Nodes of the demo cluster with secrets in their evidence: in every text, in some, and in the log."""
    for number, path in enumerate(sorted((ROOT / "fixtures" / "demo" / "nodes").iterdir())[:6]):
        recorded = load(path.read_bytes())
        name = ("zephyr-7", "osprey.zorg.example", "n00417", "gpu-node-west", "дарья", "ip-10-7-13-212.ec2.internal")[
            number
        ]
        changed = {
            collector: replace(
                collected,
                value=collected.value if (number + place) % 2 else planted(collected.value, secrets),
                detail=next(secrets),
            )
            for place, (collector, collected) in enumerate(recorded.collectors.items())
        }
        if "kernel_log" in changed:
            changed["kernel_log"] = Collected(
                Status.READ, {**recorded.collectors["kernel_log"].value, "lines": lines(secrets)}
            )
        yield replace(recorded, node=name, collectors=changed, probe=planted(dict(recorded.probe), secrets))
    for why in Unreached:
        yield NodeEvidence(
            f"zn-{why.value}", unreached=why, detail=f"{next(secrets)}:22: {next(secrets)} as {next(secrets)}"
        )


POLICY = """
# for {0}, from {1}
[mounts]
expected = ["/fsx/{2}", "/home/{3}"]
[disabled."host.swap"]
reason = "{4} said that {5} has it"
until = 2999-12-31
[instance_type."zorg-box"]
gpus = 8
[versions]
driver = "== 1.2.3"
"""
FILES = (
    "results.jsonl",
    "junit.xml",
    "page.html",
    "cluster.json",
    "report.html",
    "summary.txt",
    "summary.md",
    "metrics.prom",
)


def in_archive(path: Path) -> Iterator[tuple[str, str]]:
    """The name and content of each member of a bundle."""
    with (
        path.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as whole,
        tarfile.open(fileobj=whole, mode="r|") as archive,
    ):
        for member in archive:
            content = archive.extractfile(member)
            assert content
            yield f"{path.name}: {member.name}", f"{member.name}\n{content.read().decode()}"


def all_written(folder: Path) -> Iterator[tuple[str, str]]:
    """The name and content of each file under a folder, including packed files."""
    for path in sorted(folder.rglob("*")):
        yield f"name of {path.name}", str(path.relative_to(folder))
        if path.name.endswith(".tar.zst"):
            yield from in_archive(path)
        elif path.is_file():
            yield path.name, path.read_text(encoding="utf-8", errors="surrogateescape")


@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_no_secret_survives_in_anything_that_a_run_writes(runs: Runs, workers: list[str]) -> None:
    every = IN_PLACES
    secrets = cycle(every)
    nodes = list(demo(secrets))
    recording, out = runs.folder / "recorded", runs.folder / "out"
    targets = tuple(
        Target(node_evidence.node, "10.7.13.211", "zalice", 22, "zorg-gpt9-pretrain", "zorg-box")
        for node_evidence in nodes
    )
    settings = {
        "region": "us-west-2",
        "arn": "arn:aws:sagemaker:us-west-2:123456778901:cluster/zorgzorgzorg",
        "partition": "zorg-p",
    }
    write_cluster(recording, Cluster("zorg-cluster", "ssh", targets, settings, (f"not validated: {every[3]}",)))
    for node_evidence in nodes:
        write_node(recording, node_evidence)
    control = {
        collector: Collected(Status.READ, values_of(schema_of(collector), secrets), next(secrets))
        for collector in collectors()
    }
    write_control_plane(recording, NodeEvidence("zorg-cluster", control))
    (runs.folder / "clusterproof.toml").write_text(POLICY.format(*(secret.replace("\\", "") for secret in every[-10:])))
    out.mkdir()
    ran = runs.plain(
        *(
            "--cluster",
            f"replay:{recording}",
            str(ROOT / "checks"),
            f"--rootdir={ROOT}",
            "-p",
            "no:cacheprovider",
            "-rA",
            *workers,
        ),
        *("-o", "strict_markers=true", "--import-mode=importlib", "--redact", "--incomplete=fail", "-v"),
        *("--results=out/results.jsonl", "--record=out/kept", "--junitxml=out/junit.xml", "--html=out/page.html"),
        *("--report=out/report", "--bundle=out/bundle.tar.zst"),
    )
    assert ran.ret == 1, ran.stdout.str()[-2000:]
    written = [("terminal", "\n".join([*ran.outlines, *ran.errlines])), *all_written(out)]
    assert {where: left for where, text in written if (left := survivors(text, every))} == {}
    assert set(FILES) <= {where for where, _ in written}


CAPTURED = {
    "zephyr-7/dmesg.txt": "\n".join(f"[{number}.5] {sentence}" for number, sentence in enumerate(SENTENCES)),
    "zephyr-7/mount.txt": "{}:/export on /fsx type nfs4 (rw,addr={})\ns3fs on /mnt/{} type fuse.s3fs (rw,user={})\n",
    "zephyr-7/hostname.txt": "zephyr-7\n",
    "zephyr-7/systemctl-failed.txt": "  UNIT LOAD ACTIVE SUB DESCRIPTION\n● {} loaded failed failed {}\n",
    "osprey.zorg/nvidia-smi-L.txt": "GPU 0: NVIDIA H100 (UUID: GPU-7f2c1d7e-8a34-4c1b-9e55-0d9f6c2b7a78)\n",
    "osprey.zorg/{}.txt": "{} {}\n",
    "osprey.zorg/df.txt": "Filesystem 1K-blocks Used Available Use% Mounted\n{}:/x 100 100 0 100% /home/{}\n",
}


def test_no_secret_survives_of_a_capture(runs: Runs) -> None:
    every = EVERY
    secrets = cycle(every)
    for name, text in CAPTURED.items():
        path = runs.folder / "zorg-capture" / name.replace("{}", "zorg-odd")
        path.parent.mkdir(parents=True, exist_ok=True)
        while "{}" in text:
            text = text.replace("{}", next(secrets), 1)
        path.write_text(text, encoding="utf-8")
    (runs.folder / "out").mkdir()
    ran = runs.plain(
        *(
            "--cluster=capture:zorg-capture",
            str(ROOT / "checks"),
            f"--rootdir={ROOT}",
            "-p",
            "no:cacheprovider",
            "-rA",
            "--redact",
        ),
        *("-o", "strict_markers=true", "--import-mode=importlib", "--results=out/results.jsonl", "--record=out/kept"),
        *("--report=out/report", "--bundle=out/bundle.tar.zst", "--junitxml=out/junit.xml"),
    )
    written = [("terminal", "\n".join([*ran.outlines, *ran.errlines])), *all_written(runs.folder / "out")]
    assert {where: left for where, text in written if (left := survivors(text, every))} == {}
    assert len(written) > 10, ran.stdout.str()[-2000:]
