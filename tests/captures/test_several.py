"""Files that show several nodes: each is a separate node, and no text is attributed to another."""

from __future__ import annotations

import gzip
import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.captures import NoCaptureError, several, text
from clusterproof.plugins.captures.collection import read_capture
from clusterproof.plugins.captures.headings import MAX_PARTS
from clusterproof.plugins.captures.several import HEAD_BYTES, Reader
from clusterproof.plugins.core.opened import Budget
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import resolve
from tests.captures.captured import ILL, WELL, XID, written, xids

OF_TOOLS = "pdsh@head: gpu3: ssh exited with exit code 255\nclush: gpu4: exited with exit code 1\n"
TIMED_OUT = "clush: gpu[3-4] (2): command timeout\n"
UNREACHED = "".join(f"gpu{number}: ssh: connect to host gpu{number} port 22: Timed out\n" for number in range(3, 10))
PASS, FAIL, INCOMPLETE = Verdict.PASS, Verdict.FAIL, Verdict.INCOMPLETE
SILENT = {"gpu3": INCOMPLETE, "gpu4": INCOMPLETE}


def grouped(*groups: tuple[str, str], rule: str = "-" * 15) -> str:
    """The format of `clush -b`; dshbak's rule is one hyphen longer."""
    return "".join(f"{rule}\n{names}\n{rule}\n{output}" for names, output in groups)


def titled(title: str, *outputs: tuple[str, str]) -> str:
    """The format of ansible and others: a line with the node's name above each output."""
    return "".join(f"{title.format(name)}\n{output}" for name, output in outputs)


ANSIBLE = "{} | CHANGED | rc=0 >>"
UNREACHABLE = 'gpu3 | UNREACHABLE! => {\n    "changed": false,\n    "msg": "Timed out",\n    "unreachable": true\n}\n'


def beside(*outputs: tuple[str, str]) -> str:
    """The lines of pdsh and clush when nodes answer at once."""
    lines = [[f"{name}: {line}\n" for line in output.splitlines()] for name, output in outputs]
    return "".join(line for at_once in itertools.zip_longest(*lines, fillvalue="") for line in at_once)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (grouped(("gpu[1-3] (3)", WELL), ("gpu4", ILL)), {"gpu1": PASS, "gpu2": PASS, "gpu3": PASS, "gpu4": FAIL}),
        (
            grouped(("gpu[001-002],gpu004", WELL), ("gpu003", ILL), rule="-" * 16),
            {"gpu001": PASS, "gpu002": PASS, "gpu004": PASS, "gpu003": FAIL},
        ),
        (grouped(("gpu4", ILL)), {"gpu4": FAIL}),
        (grouped(("gpu4", WELL), ("gpu4", ILL.replace("    0", "    1"))), {"gpu4": FAIL}),
        (grouped(("gpu1", WELL), ("login", ILL)), {"gpu1": PASS, "login": FAIL}),
        (grouped(("login", ILL), ("gpu1", WELL)), {"gpu1": PASS, "login": FAIL}),
        (grouped(("gpu1", WELL), ("@rack2 (2)", ILL)), {"gpu1": PASS, "rack2": FAIL}),
        (grouped(("gpu1", "gpu7\n"), ("gpu2", "gpu8\n"), ("gpu1", WELL), ("gpu2", ILL)), {"gpu1": PASS, "gpu2": FAIL}),
        (beside(("gpu1", WELL), ("gpu2", ILL)), {"gpu1": PASS, "gpu2": FAIL}),
        (beside(("10.0.0.1", WELL), ("10.0.0.2", ILL)), {"10.0.0.1": PASS, "10.0.0.2": FAIL}),
        (
            f"[root@head ~]# pdsh -w gpu[1-3] dmesg\n{beside(('gpu1', WELL), ('gpu2', ILL))}{OF_TOOLS}",
            {"gpu1": PASS, "gpu2": FAIL, **SILENT},
        ),
        (TIMED_OUT + grouped(("gpu1", WELL), ("gpu2", ILL)), {"gpu1": PASS, "gpu2": FAIL, **SILENT}),
        (grouped(("gpu1", WELL), ("gpu2", ILL)) + TIMED_OUT, {"gpu1": PASS, "gpu2": FAIL, **SILENT}),
        (beside(("gpu2", ILL)) + TIMED_OUT, {"gpu2": FAIL, **SILENT}),
        (
            f"clush: gpu2: exited with exit code 1\n{grouped(('gpu1', WELL), ('gpu2', ILL))}",
            {"gpu1": PASS, "gpu2": FAIL},
        ),
        (
            UNREACHED + grouped(("gpu1", WELL), ("gpu2", ILL)),
            {"gpu1": PASS, "gpu2": FAIL, **{f"gpu{number}": INCOMPLETE for number in range(3, 10)}},
        ),
    ],
)
@pytest.mark.parametrize("before", ["", "> ", "    "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_of_several_nodes_is_of_each(
    text: str, expected: Mapping[str, Verdict], before: str, end: str, tmp_path: Path
) -> None:
    (tmp_path / "all.txt").write_bytes("".join(f"{before}{line}{end}" for line in text.splitlines()).encode())
    assert xids(tmp_path / "all.txt") == expected


@pytest.mark.parametrize(
    "title",
    [
        ANSIBLE,
        "{} | FAILED | rc=2 >>",
        "[1] 10:14:32 [SUCCESS] {}",
        "[1] 10:14:32 [FAILURE] root@{}:22 Exited with error code 1",
        "==> {}.txt <==",
        "==> out/{}/dmesg <==",
        "=== {} ===",
        "---- {}",
        "# {}",
        "{}",
        "{}:",
    ],
)
@pytest.mark.parametrize("before", ["", "[root@head ~]# for h in gpu1 gpu2; do ssh $h dmesg; done\n"])
def test_a_file_with_a_title_above_each_nodes_output_is_of_each(title: str, before: str, tmp_path: Path) -> None:
    text = before + titled(title, ("gpu1", ILL), ("gpu2", WELL))
    assert xids(written(tmp_path, all=text) / "all") == {"gpu1": FAIL, "gpu2": PASS}


def test_a_node_that_ansible_did_not_reach_has_no_evidence(tmp_path: Path) -> None:
    text = titled(ANSIBLE, ("gpu1", ILL)) + UNREACHABLE
    assert xids(written(tmp_path, all=text) / "all") == {"gpu1": FAIL, "gpu3": INCOMPLETE}


def test_words_before_the_first_names_are_of_no_node(tmp_path: Path) -> None:
    text = f"what clush says:\n\n$ clush -b -w gpu[1-2] dmesg\n{grouped(('gpu1', WELL), ('gpu2', ILL))}"
    assert xids(written(tmp_path, all=text) / "all") == {"gpu1": PASS, "gpu2": FAIL}


def test_an_output_that_is_known_behind_names_too_is_of_each(tmp_path: Path) -> None:
    smi = "==============NVSMI LOG==============\n\nAttached GPUs                             : 1\n"
    smi += "GPU 00000000:53:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n"
    text = beside(("gpu1", smi), ("gpu2", smi.replace(":53:", ":64:")), ("gpu3", "no such host"))
    path = written(tmp_path, all=text) / "all"
    captured = read_capture(path, resolve(f"capture:{path}"), ())
    assert {capture.evidence.node: "nvml" in capture.evidence.collectors for capture in captured} == {
        "gpu1": True,
        "gpu2": True,
        "gpu3": False,
    }


@pytest.mark.long
def test_a_heading_of_many_nodes_is_of_all_of_them(tmp_path: Path) -> None:
    many = ",".join(map(str, range(1, 1_000, 2)))
    by_node = xids(written(tmp_path, all=grouped(("gpu2", WELL), (f"gpu[{many}]", ILL))) / "all")
    assert Counter(by_node.values()) == {PASS: 1, FAIL: 500}


@pytest.mark.long
def test_a_node_whose_output_alone_is_long_is_followed_by_others(tmp_path: Path) -> None:
    long = WELL + "".join(f"[   13.{number:06}] usb 1-1: new device\n" for number in range(HEAD_BYTES // 30))
    text = beside(("gpu1", long)) + beside(("gpu2", ILL))
    assert xids(written(tmp_path, all=text) / "all") == {"gpu1": PASS, "gpu2": FAIL}


@pytest.mark.long
def test_outputs_that_many_nodes_have_in_common_are_kept_once(tmp_path: Path) -> None:
    nodes = f"gpu[1-{MAX_PARTS // 2}]"
    text = grouped((nodes, WELL), (nodes, WELL))
    reader = Reader(tmp_path, bool)
    assert len(reader.shows(written(tmp_path, all=text) / "all")) == MAX_PARTS // 2
    with pytest.raises(NoCaptureError, match="more than 100,000 outputs of nodes"):
        reader.shows(written(tmp_path, all=text + grouped(("gpu1", WELL))) / "all")


def test_files_of_several_nodes_have_a_bound_in_all(tmp_path: Path) -> None:
    text = grouped(("gpu1", WELL), ("gpu2", ILL))
    reader = Reader(tmp_path, bool, Budget(len(text)))
    assert reader.shows(written(tmp_path, one=text, two=text) / "one") == ("gpu1", "gpu2")
    with pytest.raises(OSError, match="were read in all"):
        reader.shows(tmp_path / "two")


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_a_file_of_several_nodes_that_is_too_long_is_refused_and_not_cut(
    packed: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "MAX_BYTES", HEAD_BYTES + 1)
    monkeypatch.setattr(several, "MAX_BYTES", HEAD_BYTES + 1)
    long = WELL * (HEAD_BYTES // len(WELL))
    written(tmp_path, all=packed(grouped(("gpu1", long), ("gpu2", WELL)).encode()))
    with pytest.raises(NoCaptureError, match="all shows several nodes, and is longer than 262,145 bytes"):
        Reader(tmp_path, bool).shows(tmp_path / "all")


@pytest.mark.any_user
@pytest.mark.parametrize(
    "text",
    [
        f"me1: {XID}\nyou2: {XID}\n",
        f"me1: {XID}\nyou2: [   12.500000] usb 1-1: new device\n",
        f"NVRM: {XID}\nnvidia-nvswitch0: SXid (PCI:0000:c8:00.0): 20034, Fatal\n",
        f"{WELL}{WELL}{WELL}{grouped(('gpu9', ILL))}",  # what a job prints at its end
        f"{WELL}[   14.000000] tmpfs: Unknown parameter 'x\n"
        + " " * 15
        + grouped(("gpu9", ILL)).replace("\n", "\n" + " " * 15),
        "eth0: up\nmlx5_1: down\n",
        grouped(*((f"mlx5_{number}", f"hca_id: mlx5_{number}\n\tport:\t1\n") for number in range(2))),
        f"__CURSOR=1\nMESSAGE\n{grouped(('gpu1', WELL), ('gpu9', ILL))}",
        "MemTotal: 5 kB\nDirectMap4k: 5 kB\n",
        grouped(("Summary", "x"), ("gpu[1-99999999]", "x")),
        grouped(("gpu1", "no such command\n"), ("gpu2", "no such command\n")),
        WELL + titled(ANSIBLE, ("gpu9", ILL)),
        titled("=== {} ===", ("gpu0", WELL), ("gpu1", WELL)),
        titled("=== {} ===", ("mlx5_1", WELL), ("mlx5_2", WELL)),
        titled("=== {} ===", ("before", WELL), ("after2", WELL)),
        f"loop1\nloop2\n{WELL}",
        f"$ nproc\n96\n$ dmesg\n{ILL}$ cat /proc/sys/vm/swappiness\n60\n$ dmesg\n{WELL}",
        f"$ cat /sys/module/nvidia/version\n570.133.20\n{ILL}$ cat /sys/module/efa/version\n2.10.0\n{WELL}",
        titled("### {} ###", ("1", ILL), ("2", WELL)),
        titled("=== {} ===", ("run1", ILL), ("run2", WELL)),
    ],
)
def test_what_only_looks_like_names_of_nodes_makes_none(text: str, tmp_path: Path) -> None:
    assert list(xids(written(tmp_path, all=text) / "all")) == ["all"]


def test_a_file_of_several_nodes_joins_the_folders_of_these(tmp_path: Path) -> None:
    written(tmp_path, **{"gpu1/lscpu": "x", "dmesg.txt": grouped(("gpu1", ILL), ("gpu2", WELL))})
    assert xids(tmp_path) == {"gpu1": FAIL, "gpu2": PASS}


def test_beside_files_of_one_node_a_file_of_several_is_of_those(tmp_path: Path) -> None:
    written(tmp_path / "cap", dmesg=WELL, lscpu="x", all=beside(("gpu1", ILL), ("gpu2", WELL)))
    assert xids(tmp_path / "cap") == {"cap": PASS, "gpu1": FAIL, "gpu2": PASS}


def test_what_a_nodes_part_does_not_say_is_named_with_the_node(tmp_path: Path) -> None:
    path = written(tmp_path, all=grouped(("gpu1", ILL), ("gpu2", "dmesg: not permitted\n"))) / "all"
    first, *_ = read_capture(path, resolve(f"capture:{path}"), collector_names())
    assert first.unknown == ()
    _, second = read_capture(path, resolve(f"capture:{path}"), collector_names())
    assert second.unknown == ("all, of gpu2: it is none of the known forms: dmesg: not permitted",)


@pytest.mark.parametrize("form", ["tar", "gztar", "zip"])
def test_an_archive_whose_files_may_be_of_several_nodes_is_named_and_read_as_no_output(
    form: str, tmp_path: Path
) -> None:
    smi = "\n==============NVSMI LOG==============\n\nAttached GPUs                             : 1\n"
    smi += "GPU 00000000:53:00.0\n    Product Name                          : NVIDIA H100 80GB HBM3\n"
    written(tmp_path / "case", **{f"gpu{number}/nvidia-smi-q.txt": smi for number in (1, 2)})
    archive = Path(shutil.make_archive(str(tmp_path / "gpu1"), form, tmp_path / "case"))
    (captured,) = read_capture(archive, resolve(f"capture:{archive}"), ())
    assert captured.evidence.collectors == {}
    assert captured.unknown == (
        f"{archive.name}: is an archive, of which nothing was read; expected the files that are in it",
    )
