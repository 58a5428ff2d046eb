"""A capture's bytes as text, however saved, cut short or altered: no crash, and no fault turns into a pass."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from clusterproof.plugins.captures import text
from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.captures.forms import FORMS
from clusterproof.plugins.captures.text import undecorated, unpacked
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.examples import examples
from tests.builders.samples import FOLDER, Sample, manifest, of_topic, sample
from tests.captures.any_text import TEXT, understood
from tests.captures.captured import text_of

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
def test_text_in_the_drivers_words_is_no_node(lines: str) -> None:
    assert undecorated(lines) == [lines]


def test_a_shell_whose_prompt_is_a_quotations_sign_quotes_nothing() -> None:
    assert text_of(b"> nvidia-smi -L\nGPU 0: ok\nGPU 1: ok\n").startswith("> nvidia-smi -L")


def test_bytes_that_are_no_text_do_no_harm_to_the_rest() -> None:
    assert text_of(b"Name: \xff\xfe\x80\nState: Active\n").endswith("\nState: Active\n")


def test_the_beginning_of_a_truncated_gzip_file_is_read() -> None:
    whole = "\n".join(f"line {number} {number * 7919 % 1000}" for number in range(20_000))
    packed = gzip.compress(whole.encode())
    decoded = text_of(packed[: len(packed) // 2])
    assert decoded.startswith("line 0 ")
    assert whole.startswith(decoded)


def test_a_gzip_file_that_unpacks_to_too_much_is_read_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_BYTES", 1000)
    assert len(unpacked(gzip.compress(b"\0" * 10_000_000))) <= 1000


def test_a_file_that_only_begins_like_gzip_is_empty_and_no_crash() -> None:
    assert text_of(b"\x1f\x8b\x08 and then text") == ""


@given(st.binary(max_size=300))
def test_any_bytes_become_text(content: bytes) -> None:
    decoded = text_of(content)
    assert "\r" not in decoded
    assert "\0" not in decoded


@given(text=TEXT)
@examples(300)
def test_no_text_makes_a_form_raise_anything_but_its_own_error(text: str) -> None:
    for form in FORMS:
        understood(form, text)


def faulty() -> list[object]:
    """A capture in each format with a fault, and the check that finds it."""
    chosen = [
        ("nvidia-smi-q/gpud-a10-535.129-remap-pending.txt", "gpu.row_remap"),
        ("nvidia-smi-table/azure-bad_nvsmi8_output.txt", "gpu.row_remap"),
        ("nvidia-smi-q-xml/mock-gb200-lost.xml", "gpu.gpu_answers"),
    ]
    return [pytest.param(file, check, id=file) for file, check in chosen]


def verdict(text: str, check: str) -> Verdict:
    values, _ = read_text(text)
    collectors = {collector: Collected(Status.READ, value) for collector, value in values.items()}
    cluster = Cluster("altered", "capture", (Target("gpu001"),))
    node = nodes(cluster, {"gpu001": NodeEvidence("gpu001", collectors)}, "preflight")["gpu001"]
    return evaluate(node_checks()[check], node).verdict


@pytest.mark.long
@pytest.mark.parametrize(("file", "check"), faulty())
def test_a_fault_cut_off_or_taken_out_is_no_pass(file: str, check: str) -> None:
    lines = sample(file).lines
    assert verdict("\n".join(lines), check) is Verdict.FAIL
    step = max(1, len(lines) // 30)
    for end in range(1, len(lines), step):
        assert verdict("\n".join(lines[:end]), check) is not Verdict.PASS
        without = [*lines[:end], *lines[end + step :]]
        assert verdict("\n".join(without), check) is not Verdict.PASS


def all_captures() -> list[object]:
    params = [param for topic in sorted({entry.topic for entry in manifest()}) for param in of_topic(topic)]
    return [param for param in params if "nvidia" in str(param)] or of_topic("nvidia-smi-q")[:1]


@pytest.mark.parametrize("capture", all_captures())
@examples(4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_capture_that_was_altered_is_still_read(capture: Sample, data: st.DataObject) -> None:
    text = (FOLDER / capture.file).read_text(errors="replace")[:20_000]
    place = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 200))
    altered = text[:place] + data.draw(st.text(max_size=20)) + text[place + length :]
    values, problems = read_text(altered)
    assert isinstance(values, dict)
    assert all(isinstance(problem, str) for problem in problems)
