"""`clusterproof init --from-nhc`: each line of an nhc.conf is answered, and what a policy can express is adopted."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.command_line.nhc import SETTINGS, comparison, is_covered, policy_of, read_nhc, replacements
from clusterproof.plugins.evaluation.index import read_index
from clusterproof.plugins.policy import read_policy
from tests.fuzz.inputs import INPUTS
from tests.fuzz.trying import MAX_S, soon_opened


def nhc_conf(folder: Path, *lines: str) -> Path:
    file = folder / "nhc.conf"
    file.write_text("# of the site\n\n" + "".join(f"{line}\n" for line in lines))
    return file


@pytest.mark.parametrize(
    ("line", "policy"),
    [
        ('* || check_fs_mount_rw -t lustre -s "10.0.*:/fsx" -f /fsx', '[mounts]\nexpected = ["/fsx"]\n'),
        ("* || check_fs_mount_rw /home server:/home nfs", '[mounts]\nexpected = ["/home"]\n'),
        ("* || check_fs_mount -f /a -f /b", '[mounts]\nexpected = ["/a", "/b"]\n'),
        ("* || check_fs_mount_rw -f /", ""),
        ("* || check_fs_mount_rw -t devpts -f /dev/pts", ""),
        ("* || check_fs_used / 85%", "[thresholds.root]\nused_fail_percent = 85\n"),
        ("* || check_fs_free / 3%", "[thresholds.root]\nused_fail_percent = 97\n"),
        ("* || check_fs_free / 120%", ""),
        ("* || check_fs_free / 1g", ""),
        ("* || check_fs_used /tmp 85%", ""),
        ("* || check_hw_swap 0 8g 3%", "[thresholds.memory]\nswap_concern_gib = 8.0\n"),
        ("* || check_hw_swap 0 2097152", "[thresholds.memory]\nswap_concern_gib = 2.0\n"),
        ("* || check_hw_swap 0kB 0kB 3%", ""),
        ("* || check_gpu_count 8", "[expect]\ngpus = 8\n"),
        ("* || check_hw_ib 400", ""),
        ("* || export MCELOG_MAX_CORRECTED_RATE=20", "[thresholds.kernel_log]\ncorrected_per_day = 20\n"),
        ("n0[1-4] || check_fs_mount_rw -f /scratch", ""),
    ],
)
def test_what_a_policy_can_have_is_taken_from_lines_for_every_node(line: str, policy: str, tmp_path: Path) -> None:
    assert policy_of(read_nhc(nhc_conf(tmp_path, line))) == policy


def test_as_many_infiniband_devices_are_expected_as_lines_name(tmp_path: Path) -> None:
    lines = [
        f"* || check_hw_ib {rate} mlx5_{device}" for rate, device in ((400, "0:1"), (400, "0:2"), (200, 1), (400, 1))
    ]
    assert policy_of(read_nhc(nhc_conf(tmp_path, *lines))) == "[expect]\nib = 2\n"


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("* || check_hw_cpuinfo 2 96 192", "host.cpus_online, host.thread_siblings, host.cpu_uniform: against"),
        (
            "n1 || check_hw_mcelog",
            "host.mce_edac: from the kernel itself: mcelog need not run (there only on 'n1': here",
        ),
        ("* || check_ps_service -u root -S sshd", "host.services: by what systemd knows"),
        (
            '* || check_dmi_data_match -t "BIOS Information" "Version: 2.1"',
            "host.firmware_uniform: of DMI only the BIOS's",
        ),
        ("* || check_gpu_xgmi", "NOT COVERED: of AMD's GPUs only the kernel log is read"),
        ("* || check_ps_service -r crond", "NOT COVERED: a unit of systemd's that fails is a concern"),
        ("* || check_ps_loadavg $((2*HW_CORES))", "NOT COVERED: load says nothing of a node in use"),
        ('* || check_of_site "a', "NOT COVERED: not known as a check of NHC's"),
        ("check_hw_mcelog", "NOT READ: expected TARGET || CHECK"),
        ("* || export TIMEOUT=15", "a setting of NHC itself"),
    ],
)
def test_each_line_is_answered(line: str, answer: str, tmp_path: Path) -> None:
    lines = read_nhc(nhc_conf(tmp_path, "* || check_fs_mount /fsx", line))
    answers = " ".join("".join(comparison(lines[1:])).split())
    assert f" {answer}" in answers
    assert is_covered(lines[1]) is not answer.startswith("NOT")


def test_a_line_of_control_characters_is_printed_escaped(tmp_path: Path) -> None:
    lines = read_nhc(nhc_conf(tmp_path, "* || check_of_site \x1b[2J"))
    assert "\x1b" not in "".join(comparison(lines))


def test_the_checks_and_settings_that_the_catalogue_names_exist() -> None:
    rows = replacements().values()
    assert {check for row in rows for check in row.checks} <= read_index().keys()
    assert {row.policy for row in rows if row.policy} == SETTINGS.keys()
    assert all(row.checks or row.note for row in rows)


def test_the_policy_is_written_beside_the_examples_and_is_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = nhc_conf(tmp_path, "* || check_fs_mount_rw -f /fsx", "* || check_gpu_count 8", "* || check_hw_gm myri0")
    assert main(["init", str(tmp_path / "new"), "--from-nhc", str(file)]) == 0
    policy = read_policy(tmp_path / "new" / "clusterproof.toml")
    assert (policy.expect, policy.mounts) == ({"gpus": 8}, ("/fsx",))
    assert f"3 lines of {file}: 2 covered, 1 not\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file or directory"),
        (b"# nothing\n", "has no line such as: * || check_fs_mount_rw -f /"),
        (b"\n* || " + b"x" * 10_000, "has more than 10,000 characters in line 2; expected an nhc.conf"),
        (b"\xff || x\n", "byte 0 is not UTF-8"),
    ],
)
def test_a_file_that_is_no_nhc_conf_is_refused_and_nothing_is_written(
    content: bytes | None, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nhc.conf"
    if content is not None:
        file.write_bytes(content)
    assert main(["init", str(tmp_path / "new"), "--from-nhc", str(file)]) == 4
    error = capsys.readouterr().err
    assert f"{file}: {reason}" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("line", "policy"),
    [
        (f"* || export MCELOG_MAX_CORRECTED_RATE={'9' * 5_000}", ""),
        ("* || export MCELOG_MAX_CORRECTED_RATE=٣", ""),
        ("* || check_gpu_count ٣", ""),
        ("* || check_fs_mount_rw -f /data/😀", '[mounts]\nexpected = ["/data/😀"]\n'),
        ("* || check_fs_mount_rw -f '/data/\x7f'", ""),
    ],
    ids=["a long number", "other digits", "of GPUs", "a path", "a path to hide"],
)
def test_what_is_odd_in_a_line_leaves_a_policy_that_can_be_read(line: str, policy: str, tmp_path: Path) -> None:
    file = nhc_conf(tmp_path, line, "* || check_fs_mount_rw -f /")
    assert policy_of(read_nhc(file)) == policy
    (tmp_path / "clusterproof.toml").write_text(policy, encoding="utf-8")
    read_policy(tmp_path / "clusterproof.toml")


@pytest.mark.long
def test_as_many_mounts_as_a_file_may_have_are_read_soon(tmp_path: Path) -> None:
    nhc_conf(tmp_path, *(f"* || check_fs_mount /a{number}" for number in range(30_000)))
    assert soon_opened(INPUTS["nhc"], tmp_path, "nhc.conf") < MAX_S
