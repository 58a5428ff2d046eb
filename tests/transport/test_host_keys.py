"""known_hosts: which keys a host may present, in every format that OpenSSH writes."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from clusterproof.plugins.transport.ssh.host_keys import KnownHosts, Trust
from tests.testbed.needs import needs_ssh

KEY, OTHER = b"the host's key", b"another key"


def line(names: str, key: bytes = KEY, marker: str = "") -> str:
    return f"{marker} {names} ssh-ed25519 {base64.b64encode(key).decode()} a comment\n".lstrip()


def trust(tmp_path: Path, text: str, name: str, key: bytes = KEY) -> Trust:
    (tmp_path / "known_hosts").write_text(text)
    return KnownHosts([tmp_path / "absent", tmp_path / "known_hosts"]).trust(name, key)[0]


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("", "gpu1", Trust.UNKNOWN),
        (line("gpu1"), "gpu1", Trust.KNOWN),
        (line("gpu1"), "GPU1", Trust.KNOWN),
        (line("gpu1"), "gpu10", Trust.UNKNOWN),
        (line("gpu1,10.0.0.1"), "10.0.0.1", Trust.KNOWN),
        (line("[gpu1]:2222"), "[gpu1]:2222", Trust.KNOWN),
        (line("[gpu1]:2222"), "gpu1", Trust.UNKNOWN),
        (line("gpu1", OTHER), "gpu1", Trust.CHANGED),
        (line("gpu1", OTHER) + line("gpu1"), "gpu1", Trust.KNOWN),
        (line("gpu*"), "gpu1", Trust.KNOWN),
        (line("gpu?"), "gpu12", Trust.UNKNOWN),
        (line("[*.east]:22"), "[a.east]:22", Trust.KNOWN),
        (line("gpu*,!gpu2"), "gpu1", Trust.KNOWN),
        (line("gpu*,!gpu2"), "gpu2", Trust.UNKNOWN),
        (line("gpu1") + line("*", marker="@revoked"), "gpu1", Trust.REVOKED),
        (line("*", OTHER, "@revoked"), "gpu1", Trust.UNKNOWN),
        (line("gpu1", marker="@cert-authority"), "gpu1", Trust.UNKNOWN),
        ("# " + line("gpu1"), "gpu1", Trust.UNKNOWN),
        ("gpu1 ssh-ed25519 not-base64\n", "gpu1", Trust.UNKNOWN),
        ("gpu1 ssh-ed25519\n|1|x ssh-ed25519 AAAA\n@\n\n", "gpu1", Trust.UNKNOWN),
    ],
)
def test_a_key_is_checked_against_the_lines_of_its_host(tmp_path: Path, text: str, name: str, expected: Trust) -> None:
    assert trust(tmp_path, text, name) is expected


@needs_ssh
def test_hashed_names_are_known_as_ssh_keygen_writes_them(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    kind, key = (tmp_path / "key.pub").read_text().split()[:2]
    (tmp_path / "known_hosts").write_text(f"gpu1,[gpu2]:2222 {kind} {key}\n")
    subprocess.run(["ssh-keygen", "-H", "-f", tmp_path / "known_hosts"], check=True, capture_output=True)
    text = (tmp_path / "known_hosts").read_text()
    assert "gpu" not in text
    names = ("gpu1", "[gpu2]:2222", "gpu2")
    assert [trust(tmp_path, text, name, base64.b64decode(key)) for name in names] == [
        Trust.KNOWN,
        Trust.KNOWN,
        Trust.UNKNOWN,
    ]


def test_the_line_that_decides_is_named(tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text(line("gpu1", OTHER) + line("gpu2"))
    known = KnownHosts([tmp_path / "known_hosts"])
    assert known.trust("gpu1", KEY) == (Trust.CHANGED, f"{tmp_path}/known_hosts:1")
    assert known.trust("gpu2", KEY) == (Trust.KNOWN, f"{tmp_path}/known_hosts:2")


def test_the_kinds_of_a_hosts_keys_are_known_in_their_order(tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text("gpu1 ssh-rsa AAAA\ngpu1 ssh-ed25519 AAAA\ngpu1 ssh-rsa BBBB\n")
    assert KnownHosts([tmp_path / "known_hosts"]).kinds("gpu1") == ["ssh-rsa", "ssh-ed25519"]
