"""A capture's bytes as text, however they were saved."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.captures import text
from clusterproof.plugins.captures.text import text_of, undecorated, unpacked

LINES = "GPU 0: ok\nGPU 1: ö\n"


@pytest.mark.parametrize(
    "saved",
    [
        LINES.encode(),
        LINES.encode("utf-8-sig"),
        LINES.encode("utf-16"),
        b"\xfe\xff" + LINES.encode("utf-16-be"),
        LINES.replace("\n", "\r\n").encode(),
        gzip.compress(LINES.encode()),
        gzip.compress(LINES[:9].encode()) + gzip.compress(LINES[9:].encode()),
        LINES.replace("GPU 1", "\x1b[1;31mGPU\x1b[0m 1").encode(),
        ("\x1b]0;gpu001: top\x07" + LINES).encode(),
        LINES.replace(" ", "\0 ").encode(),
        LINES.replace("GPU ", "> GPU ").encode(),
        LINES.replace(" ", "\N{NO-BREAK SPACE}").encode(),
        LINES.replace("\n", " \t\n").encode(),
    ],
    ids=[
        "utf-8",
        "bom",
        "utf-16",
        "utf-16-be",
        "crlf",
        "gzip",
        "gzips",
        "colours",
        "title",
        "nul",
        "quoted",
        "nbsp",
        "blanks",
    ],
)
def test_however_it_was_saved_the_text_is_the_same(saved: bytes) -> None:
    assert text_of(saved) == LINES


@pytest.mark.parametrize("before", ["    ", " " * 12, "\t", "gpu-17: ", "10.1.2.3: ", "  gpu-17: "])
def test_what_stands_before_every_line_alike_is_no_part_of_the_output(before: str) -> None:
    lines = ("", "a: 1", "", "  b: 2")
    assert undecorated("\n".join(f"{before}{line}".rstrip() for line in lines))[0] == "\n".join(lines)


@pytest.mark.parametrize(
    "text", [" " * 13 + "further words of a record", "gpu-17: a\ngpu-18: b", "a: 1\nb: 2", "| a |"]
)
def test_what_stands_before_some_lines_only_is_part_of_it(text: str) -> None:
    assert undecorated(text) == [text]


def test_what_may_be_a_nodes_name_is_left_where_it_may_be_none() -> None:
    assert undecorated("  NVRM: a\n  NVRM: b") == ["a\nb", "NVRM: a\nNVRM: b", "  NVRM: a\n  NVRM: b"]


@pytest.mark.any_user
def test_what_html_writes_for_signs_and_newlines_begins_no_line_and_no_field() -> None:
    text = "[    1.5] a[1]: segfault in &lt;&#10;[    2.5] NVRM: Xid&lt;/process_name&gt;&#x0a;"
    assert undecorated(text) == [text]


@pytest.mark.any_user
@pytest.mark.parametrize(
    "lines",
    [
        "me: NVRM: Xid 79",
        "me: kernel: NVRM: Xid 79",
        "me: [...]\nme: NVRM: Xid 79",
        "me: NVRM: Xid 79\nme: [    5.000000] a",
        "me: nvidia-nvswitch0: SXid 79",
    ],
)
def test_whoever_speaks_in_the_drivers_words_is_no_node(lines: str) -> None:
    assert undecorated(lines) == [lines]


def test_a_shell_whose_prompt_is_a_quotations_sign_quotes_nothing() -> None:
    assert text_of(b"> nvidia-smi -L\nGPU 0: ok\nGPU 1: ok\n").startswith("> nvidia-smi -L")


def test_bytes_that_are_no_text_do_no_harm_to_the_rest() -> None:
    assert text_of(b"Name: \xff\xfe\x80\nState: Active\n").endswith("\nState: Active\n")


def test_of_a_gzip_file_that_is_cut_short_the_beginning_is_read() -> None:
    whole = "\n".join(f"line {number} {number * 7919 % 1000}" for number in range(20_000))
    packed = gzip.compress(whole.encode())
    data = text_of(packed[: len(packed) // 2])
    assert data.startswith("line 0 ")
    assert whole.startswith(data)


def test_a_gzip_file_that_unpacks_to_too_much_is_read_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_BYTES", 1000)
    assert len(unpacked(gzip.compress(b"\0" * 10_000_000))) <= 1000


def test_a_file_that_only_begins_like_gzip_is_empty_and_no_crash() -> None:
    assert text_of(b"\x1f\x8b\x08 and then text") == ""


@given(st.binary(max_size=300))
def test_any_bytes_become_text(content: bytes) -> None:
    data = text_of(content)
    assert "\r" not in data
    assert "\0" not in data
