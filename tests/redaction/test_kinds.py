"""`--redact` keeps what is declared harmless: every value that a node reports has a declared kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import walk_packages

import pytest

from clusterproof.plugins import evidence as facts
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, load
from clusterproof.plugins.evidence.field import Field
from clusterproof.plugins.redaction.kinds import ValueKind, keys, schema_of
from clusterproof.plugins.redaction.redact import Redaction
from tests.builders.evaluated import results
from tests.builders.recordings import node
from tests.builders.runs import ROOT
from tests.faults.proof import NODE, healthy, peers
from tests.testbed.gpus import healthy_gpu_node
from tests.testbed.healthy import healthy_cpu
from tests.testbed.image import NodeImage
from tests.testbed.load import loadable_p5, loadable_trn2
from tests.testbed.needs import needs_nodes

DECLARE = "declare in redaction.toml beside the collector whether each of these is harmless: a number, a text, …"


def gb300() -> NodeImage:
    """A node with the newest GPUs, under load."""
    return healthy_gpu_node("GB300", loaded=True)


def v100() -> NodeImage:
    """A node with the oldest GPUs."""
    return healthy_gpu_node("V100", loaded=True)


BASES = (loadable_p5, loadable_trn2, healthy_cpu, gb300, v100)


def of(evidence: NodeEvidence) -> set[str]:
    """The paths in a node's evidence whose kind is not declared."""
    answers = evidence.collectors.items()
    return {path for name, answer in answers for path in undeclared(answer.value, schema_of(name), name)}


def undeclared(value: object, place: ValueKind, path: str) -> Iterator[str]:
    """The paths of a value whose kind is not declared."""
    if isinstance(value, list):
        for entry in value:
            yield from undeclared(entry, place, path)
    elif isinstance(value, dict):
        if "error" not in value:
            for key, entry in value.items():
                yield from undeclared(entry, place.at(key), f"{path}.{key}")
    elif not place.kind and value is not None:
        yield path


def test_every_value_of_the_demo_cluster_is_declared() -> None:
    recorded = sorted((ROOT / "fixtures" / "demo" / "nodes").iterdir())
    assert len(recorded) == 16
    paths = {path for recording in recorded for path in of(load(recording.read_bytes()))}
    assert paths == set(), DECLARE


@needs_nodes
@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_every_value_that_a_healthy_node_reports_is_declared(base: Callable[[], NodeImage]) -> None:
    assert of(healthy(base)) == set(), DECLARE


@pytest.mark.long
def test_every_field_that_checks_read_is_declared() -> None:
    read = {
        f"{of_class.__module__}.{of_class.__name__}.{field.key}": field.key
        for module in walk_packages(facts.__path__, f"{facts.__name__}.")
        if ".on_node." not in module.name  # these import modules that nodes have
        for of_class in vars(import_module(module.name)).values()
        if isinstance(of_class, type)
        for field in vars(of_class).values()
        if isinstance(field, Field)
    }
    assert len(read) > 150
    assert {where for where, key in read.items() if key not in keys()} == set(), DECLARE


def test_what_nobody_declared_is_kept_word_by_word() -> None:
    evidence = node("n1", rack={"place": "zorg-7", "state": "active", "count": 123456789012, "index": 7})
    redaction = Redaction(Cluster("c", "ssh", (Target("n1"),)))
    shown = redaction.evidence(evidence).collectors["rack"].value
    assert shown == {"place": "name-1", "state": "active", "count": 0, "index": 7}


@needs_nodes
@pytest.mark.parametrize("base", BASES, ids=lambda base: base.__name__)
def test_a_healthy_node_has_the_same_verdicts_without_its_names(base: Callable[[], NodeImage]) -> None:
    evidence_of_nodes = [healthy(base), *peers(base)]
    redaction = Redaction(Cluster("fakes", "local", tuple(Target(evidence.node) for evidence in evidence_of_nodes)))
    kept: list[NodeEvidence] = []
    with redaction.rewriting(kept.append) as learn:
        for evidence in evidence_of_nodes:
            learn(evidence)
    before, after = results(evidence_of_nodes[0], peers=evidence_of_nodes[1:]), results(kept[0], peers=kept[1:])
    assert {check: evidence.verdict for check, evidence in after.items()} == {
        check: evidence.verdict for check, evidence in before.items()
    }
    assert NODE not in {evidence.node for evidence in after.values()}


def test_the_kernels_functions_are_kept_and_a_process_that_runs_them_is_not_named() -> None:
    stack = ["nv_acpi_extract_object", "rpc_wait_bit_killable", "zorg_llm_70b"]
    blocked = {"name": "zorgd", "wait": "nvidia_unlocked_ioctl", "stack": stack, "blocked_s": 900.0}
    redaction = Redaction(Cluster("c", "ssh", (Target("n1"),)))
    [shown] = redaction.evidence(node("n1", processes={"blocked": [blocked]})).collectors["processes"].value["blocked"]
    assert (shown["wait"], shown["stack"][:2]) == ("nvidia_unlocked_ioctl", stack[:2])
    assert "zorg" not in str(shown)


PRINTED = (
    '{"torch": "2.11", "gpus": [{"name": "NVIDIA H200", "types": [{"products": 4752381313, "why": "of vault-7"}]}]}'
)


@pytest.mark.parametrize(
    ("output", "kept"),
    [
        (f"warning\n{PRINTED}\n", f"warning\n{PRINTED}\n".replace("vault-7", "name-1")),
        ('{"serial number": "1654024032550"}', '{"serial number": "900000001"}'),
        ("{not JSON", "{not JSON"),
        ('{"a": ' * 900 + "1" + "}" * 900, '{"a": ' * 900 + "1" + "}" * 900),
    ],
    ids=["numbers", "a serial", "no JSON", "deep"],
)
def test_what_a_program_prints_as_json_stays_json(output: str, kept: str) -> None:
    redaction = Redaction(Cluster("prod", "ssh", (Target("n1"),)))
    evidence = node("n1", gpu_exact={"gpus": 1, "output": output})
    redaction.learn(evidence)
    value = redaction.evidence(evidence).collectors["gpu_exact"].value
    assert isinstance(value, dict)
    assert value["output"] == kept


@pytest.mark.parametrize(
    ("collector", "key", "known"),
    [
        ("nvml", "gpus", {"index": 5}),
        ("rdma", "devices", {"name": "rdmap79s0"}),
        ("nvme", "controllers", {"name": "nvme3"}),
        ("edac", "controllers", {"name": "mc1"}),
        ("interfaces", "physical", {"name": "ens32"}),
        ("lustre", "clients", {"kind": "osc", "name": "abcdefgh-OST0003-osc-ffff9b01"}),
        ("lustre_space", "targets", {"kind": "ost", "name": "abcdefgh-OST0003"}),
        ("pci", "devices", {"address": "0000:53:00.0", "vendor": "10de", "device": "2330", "class": "030200"}),
        ("pci_config", "functions", {"address": "0000:53:00.0", "kind": "gpu", "model": "10de:2330"}),
        ("roce", "ports", {"device": "mlx5_0", "model": "15b3:1021", "port": 1}),
    ],
)
def test_devices_that_were_never_read_keep_the_names_that_the_others_have(
    collector: str, key: str, known: dict[str, object]
) -> None:
    hung = Collected(Status.TIMED_OUT, {key: [known], f"all_{key}": [known, known]})
    redaction = Redaction(Cluster("prod", "ssh", (Target("gpu001"),)))
    shown = redaction.evidence(NodeEvidence("gpu001", {collector: hung})).collectors[collector].value
    assert shown == {key: shown[key], f"all_{key}": shown[key] * 2}
