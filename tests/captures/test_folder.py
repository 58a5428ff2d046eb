"""Which files of a capture belong to which node."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins import captures
from clusterproof.plugins.captures import NoCaptureError, layout
from clusterproof.plugins.captures.collection import understood
from clusterproof.plugins.captures.file_names import prefix
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import results
from tests.builders.unreadable import lock
from tests.captures.captured import written

UUIDS = [f"GPU-{number * 8}-{number * 4}-{number * 4}-{number * 4}-{number * 12}" for number in "12"]


def nodes(path: Path) -> dict[str, list[str]]:
    return {node.name: [file.name for file in node.files] for node in layout(path).nodes}


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("gpu001.nvidia-smi-q.txt", "gpu001"),
        ("gpu001.dmesg", "gpu001"),
        ("gpu002_nvidia-smi.txt", "gpu002"),
        ("gpu-3-lspci.log", "gpu-3"),
        ("ip-10-0-0-1.ec2.internal-dmesg.txt", "ip-10-0-0-1.ec2.internal"),
        ("10.0.0.5_dmesg.txt", "10.0.0.5"),
        ("node7.nvidia-bug-report.log.gz", "node7"),
        ("gpu004.log", "gpu004"),
        ("nvidia-smi-q.txt", ""),
        ("dmesg", ""),
        ("lspci-nn.txt", ""),
        ("nvidia-bug-report.log.gz", ""),
        ("notes.txt", ""),
    ],
)
def test_a_files_name_may_begin_with_its_nodes(name: str, node: str) -> None:
    assert prefix(name) == node


def test_a_folder_for_each_node(tmp_path: Path) -> None:
    written(tmp_path, "gpu001/dmesg", "gpu001/logs/smi", "gpu002/dmesg")
    (tmp_path / "empty").mkdir()
    assert nodes(tmp_path) == {"gpu001": ["dmesg", "smi"], "gpu002": ["dmesg"]}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            ["gpu001.dmesg", "gpu001.lspci.txt", "gpu002_nvidia-smi.txt"],
            {"gpu001": ["gpu001.dmesg", "gpu001.lspci.txt"], "gpu002": ["gpu002_nvidia-smi.txt"]},
        ),
        (["dmesg.txt", "nvidia-smi-q.txt", "h100.lspci"], {"cap": ["dmesg.txt", "h100.lspci", "nvidia-smi-q.txt"]}),
        (["everything.txt"], {"cap": ["everything.txt"]}),
        (["dmesg_gpu001.txt", "dmesg_gpu002.txt"], {"gpu001": ["dmesg_gpu001.txt"], "gpu002": ["dmesg_gpu002.txt"]}),
        (
            ["dmesg-ip-10-0-0-1.log", "nvidia-smi-q-ip-10-0-0-1.log", "nvidia-smi-q-x_ip-10-0-0-2.xml"],
            {
                "ip-10-0-0-1": ["dmesg-ip-10-0-0-1.log", "nvidia-smi-q-ip-10-0-0-1.log"],
                "ip-10-0-0-2": ["nvidia-smi-q-x_ip-10-0-0-2.xml"],
            },
        ),
        (
            ["nvidia-smi-q-gpu0.txt", "nvidia-smi-q-gpu1.txt"],
            {"cap": ["nvidia-smi-q-gpu0.txt", "nvidia-smi-q-gpu1.txt"]},
        ),
        (["ethtool-eth1.txt", "ethtool-eth2.txt"], {"cap": ["ethtool-eth1.txt", "ethtool-eth2.txt"]}),
        (["dmesg-boot1.txt", "dmesg-boot2.txt"], {"cap": ["dmesg-boot1.txt", "dmesg-boot2.txt"]}),
        (["dmesg.txt", "nccl-gpu1.log", "nccl-gpu2.log"], {"cap": ["dmesg.txt", "nccl-gpu1.log", "nccl-gpu2.log"]}),
        (
            ["nvidia-bug-report-gpu001.log.gz", "ibv_devinfo_gpu002.txt"],
            {"gpu001": ["nvidia-bug-report-gpu001.log.gz"], "gpu002": ["ibv_devinfo_gpu002.txt"]},
        ),
        *(
            (files, {"cap": files})
            for files in (
                ["kern.log.1.gz", "kern.log.2.gz"],
                ["nvidia-bug-report-20261130.log.gz", "nvidia-bug-report-20261201.log.gz"],
                ["dcgmi-diag-r1.txt", "dcgmi-diag-r3.txt"],
                ["dmesg-20261130T1000.txt", "dmesg-20261201T1000.txt"],
                ["nccl-allreduce-16g.log", "nccl-allreduce-32g.log"],
                ["nccl_test_2nodes.log", "nccl_test_4nodes.log"],
                ["nccl-rank1.log", "nccl-rank2.log"],
                ["rdma-port1.txt", "rdma-port2.txt"],
            )
        ),
    ],
)
def test_files_side_by_side_are_of_the_nodes_that_all_their_names_have_or_of_one(
    tmp_path: Path, files: list[str], expected: dict[str, list[str]]
) -> None:
    written(tmp_path / "cap", *files)
    assert nodes(tmp_path / "cap") == expected


def test_a_file_beside_those_of_several_nodes_that_has_no_output_makes_them_no_single_node(tmp_path: Path) -> None:
    written(tmp_path, "gpu001.dmesg", "gpu002.dmesg", "notes.txt")
    assert nodes(tmp_path) == {"gpu001": ["gpu001.dmesg"], "gpu002": ["gpu002.dmesg"]}
    assert layout(tmp_path).strays == ("notes.txt lies beside the nodes' files, and is of none of them",)


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("gpu001.nvidia-bug-report.log.gz", "gpu001"),
        ("nvidia-bug-report.log.gz", "nvidia-bug-report"),
        ("a b!.txt", "a-b"),
    ],
)
def test_a_single_file_is_a_node(tmp_path: Path, name: str, node: str) -> None:
    written(tmp_path, name)
    assert nodes(tmp_path / name) == {node: [name]}


def test_a_file_beside_the_folders_joins_its_node_or_is_named(tmp_path: Path) -> None:
    written(tmp_path, "gpu001/dmesg", "gpu001.lspci", "readme")
    assert nodes(tmp_path) == {"gpu001": ["dmesg", "gpu001.lspci"]}
    assert layout(tmp_path).strays == ("readme lies beside the nodes' folders, and is of none of them",)


def test_a_file_beside_the_folders_of_a_node_that_has_none_is_that_nodes(tmp_path: Path) -> None:
    written(tmp_path, "gpu001/dmesg", "gpu002/dmesg", "gpu013.dmesg", "gpu013.lspci", "head.dmesg")
    assert nodes(tmp_path) == {"gpu001": ["dmesg"], "gpu002": ["dmesg"], "gpu013": ["gpu013.dmesg", "gpu013.lspci"]}
    assert layout(tmp_path).strays == ("head.dmesg lies beside the nodes' folders, and is of none of them",)


def test_no_link_is_followed(tmp_path: Path) -> None:
    written(tmp_path, "cap/gpu001/dmesg", "secret")
    (tmp_path / "cap" / "gpu001" / "lspci").symlink_to(tmp_path / "secret")
    (tmp_path / "cap" / "gpu002").symlink_to(tmp_path)
    assert nodes(tmp_path / "cap") == {"gpu001": ["dmesg"]}
    assert layout(tmp_path / "cap").strays == (
        "gpu002 is a link, which is not followed",
        "gpu001/lspci is a link, which is not followed",
    )


@pytest.mark.parametrize(
    ("made", "is_locked", "why"),
    [
        ("gpu002", False, "gpu002: no file in it"),
        ("gpu002", True, "gpu002 cannot be opened: Permission denied"),
        ("gpu002/1/2/3/4/5/6/7/8/9", False, "gpu002/1/2/3/4/5/6/7/8/9 is more than 8 folders deep, and not read"),
    ],
)
def test_a_folder_of_which_no_file_is_read_is_a_node_whose_evidence_is_missing(
    made: str, is_locked: bool, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "gpu001/dmesg")
    (tmp_path / made).mkdir(parents=True)
    if is_locked:
        lock(monkeypatch, tmp_path / made)
    first, second = layout(tmp_path).nodes
    assert (first.name, first.missing) == ("gpu001", "")
    assert (second.name, second.missing) == (made.partition("/")[0], why)
    assert understood(second, tmp_path, ()).evidence.unreached is Unreached.UNRECORDED
    assert layout(tmp_path).strays == (why,)


@pytest.mark.parametrize("made", ["lost+found", "2026-11-20", "tmp1", "head"])
@pytest.mark.parametrize("is_locked", [True, False])
def test_a_folder_without_a_file_that_is_not_called_as_the_nodes_are_is_no_node_and_is_named(
    made: str, is_locked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "gpu001/dmesg")
    (tmp_path / made).mkdir()
    if is_locked:
        lock(monkeypatch, tmp_path / made)
    assert nodes(tmp_path) == {"gpu001": ["dmesg"]}
    assert layout(tmp_path).strays == (
        f"{made} cannot be opened: Permission denied" if is_locked else f"{made}: no file in it",
    )


def test_what_lies_beside_a_folder_without_a_file_or_shows_its_node_is_of_it(tmp_path: Path) -> None:
    written(tmp_path, "gpu001/dmesg", "gpu002.dmesg")
    (tmp_path / "gpu002").mkdir()
    assert nodes(tmp_path) == {"gpu001": ["dmesg"], "gpu002": ["gpu002.dmesg"]}
    assert not any(node.missing for node in layout(tmp_path).nodes)


@pytest.mark.parametrize("made", ["gpu001/logs", "sub"])
def test_a_folder_in_a_nodes_own_that_cannot_be_opened_is_named(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, f"{made.rpartition('/')[0] or '.'}/dmesg", f"{made}/lspci")
    lock(monkeypatch, tmp_path / made)
    assert list(nodes(tmp_path).values()) == [["dmesg"]]
    assert layout(tmp_path).strays == (f"{made} cannot be opened: Permission denied",)


def test_a_capture_of_which_nothing_can_be_read_is_refused_with_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, "gpu001/dmesg")
    lock(monkeypatch, tmp_path / "gpu001")
    with pytest.raises(NoCaptureError, match="gpu001 cannot be opened: Permission denied"):
        layout(tmp_path)


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "MAX_FILES", 2)
    written(tmp_path, "gpu1/dmesg", "gpu2/dmesg", "gpu3/dmesg")
    with pytest.raises(NoCaptureError, match="more than 2 files"):
        layout(tmp_path)


def test_names_that_become_the_same_stay_apart(tmp_path: Path) -> None:
    written(tmp_path, "gpu 1/dmesg", "gpu!1/dmesg")
    assert list(nodes(tmp_path)) == ["gpu-1", "gpu-1-2"]


@pytest.mark.parametrize("path", ["nowhere", "empty"])
def test_a_path_without_a_file_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoCaptureError):
        layout(tmp_path / path)


def test_the_reports_of_an_earlier_run_are_no_node(tmp_path: Path) -> None:
    written(tmp_path, "gpu001/dmesg", "runs/c/latest/results.jsonl", "runs/c/latest/junit.xml", "runs/c/latest/more/a")
    assert nodes(tmp_path) == {"gpu001": ["dmesg"]}
    assert layout(tmp_path).strays == ("runs/c/latest has the reports of a run, which are no outputs of a node",)
    written(tmp_path / "flat", "dmesg.txt", "runs/c/latest/results.jsonl", "runs/c/latest/junit.xml")
    assert nodes(tmp_path / "flat") == {"flat": ["dmesg.txt"]}


def test_files_of_one_folder_that_show_two_gpus_of_one_number_hide_neither(tmp_path: Path) -> None:
    well = (
        f"==============NVSMI LOG==============\n\nAttached GPUs : 1\nGPU 00000000:53:00.0\n"
        f"    Product Name : NVIDIA H100 80GB HBM3\n    GPU UUID : {UUIDS[0]}\n"
        "    ECC Errors\n        Volatile\n            DRAM Uncorrectable : 0\n"
    )
    ill = well.replace(UUIDS[0], UUIDS[1]).replace("Uncorrectable : 0", "Uncorrectable : 14")
    listed = "index, name, persistence_mode\n0, NVIDIA H100 80GB HBM3, Enabled\n"
    written(tmp_path / "cap", **{"nvidia-smi-q-gpu1": well, "nvidia-smi-q-gpu2": ill, "nvidia-smi-query": listed})
    (node,) = layout(tmp_path / "cap").nodes
    captured = understood(node, tmp_path / "cap", ())
    result = results(captured.evidence)["gpu.no_uncorrected_ecc"]
    assert result.verdict is Verdict.FAIL
    assert "GPU 0: uncorrected ECC errors: 14 in DRAM; expected 0" in result.message
    assert captured.unknown == (f"GPU 0 is {UUIDS[0]} and {UUIDS[1]}; expected the outputs of one node and time",)
