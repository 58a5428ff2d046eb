"""A node's answer is found among any noise, is complete or rejected, and is never trusted."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clusterproof.plugins.agent import frame, sending
from clusterproof.plugins.agent.frame import decode
from clusterproof.plugins.core.evidence import NodeEvidence, Status, Unreached, to_json
from clusterproof.plugins.transport import Answer

NONCE = "cp0123456789"
BEGIN = f"{NONCE}:begin."
ANSWER = {
    "probe": {"python": "3.11.2"},
    "collectors": {
        "boot": {"status": "read", "value": {"uptime_s": 86400.5, "hostname": "gpu001"}, "seconds": 0.01},
        "nvml": {"status": "timed_out", "detail": "GPU 5: memory", "seconds": 15.0},
        "kernel_log": {"status": "read", "value": {"lines": [[1.5, f"NVRM: {n * 7919}"] for n in range(40)]}},
    },
}


def framed(answer: object = ANSWER, *, nonce: str = NONCE) -> list[str]:
    """The lines of an answer."""
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return [f"{nonce}:begin.", *sending.lines(zlib.compress(text), nonce)]


def output_of(packed: bytes, chunk_bytes: int = sending.CHUNK_BYTES) -> str:
    """A whole frame, whatever is packed in it."""
    return "\n".join([BEGIN, *sending.lines(packed, NONCE, chunk_bytes)])


def decoded(output: str | bytes) -> NodeEvidence:
    return decode("gpu001", Answer(output if isinstance(output, bytes) else output.encode()), NONCE)


WHOLE = decoded("\n".join(framed()))
FRAME = "\n".join(framed())
TPUT = "tput: No value for $TERM and no -T specified"


def test_a_whole_frame_is_the_nodes_evidence() -> None:
    assert WHOLE.unreached is None
    assert WHOLE.probe == {"python": "3.11.2"}
    assert WHOLE.collectors["boot"].value == {"uptime_s": 86400.5, "hostname": "gpu001"}
    assert WHOLE.collectors["nvml"].status is Status.TIMED_OUT
    assert WHOLE.collectors["nvml"].detail == "GPU 5: memory"


@pytest.mark.parametrize(
    ("output", "has_end"),
    [
        (f"{FRAME}\n", True),
        (FRAME, True),
        (f"{NONCE}:no-python: python3 (Python 3.6.8)\n", True),
        (f"{NONCE}:no-python: python3 (Pyth", False),
        (FRAME[:-1], False),
        (FRAME.replace(NONCE, "cp9999999999"), False),
        ("", False),
    ],
)
def test_the_end_of_an_answer_is_known(output: str, has_end: bool) -> None:
    assert frame.has_end(output.encode(), NONCE) is has_end


def test_the_frame_fits_narrow_lines() -> None:
    assert max(map(len, framed({"collectors": {}, "probe": {"noise": list(range(10_000))}}))) <= 80


@pytest.mark.parametrize(
    "output",
    [
        f"*** Authorized use only ***\n{TPUT}\n{FRAME}\n",
        f"motd without a line end{FRAME}logout",
        "\r\n".join(framed()) + "\r\n",
        " ".join(framed()),
        "".join(framed()),
        f"\n{TPUT}\n".join(framed()),
        "\x1b[0m\n".join(framed()),
        "\x00\ufffd\n".join(framed()),
        f"n={NONCE};for p in python3;do echo $n:begin.\n{FRAME}",
    ],
    ids=["banner", "no-line-ends", "crlf", "blanks", "nothing", "between", "colours", "nul", "echoed-command"],
)
def test_noise_does_no_harm(output: str) -> None:
    assert decoded(output) == WHOLE


LONG = {
    "probe": {"python": "3.11.2"},
    "collectors": {
        f"collector{n}": {"status": "read", "value": {'{[\\"': [m * 7919 * n**3 for m in range(400)]}, "seconds": 0.1}
        for n in range(20)
    },
}


@pytest.mark.long
@pytest.mark.parametrize("chunk_bytes", [sending.CHUNK_BYTES, sending.WIDE_BYTES])
def test_a_cut_answer_keeps_the_collectors_that_came_whole(chunk_bytes: int) -> None:
    packed = zlib.compress(json.dumps(LONG).encode())
    output = output_of(packed, chunk_bytes)
    whole = decoded(output)
    assert len(whole.collectors) == 20
    kept = []
    for length in range(0, len(output), 997):
        evidence = decoded(output[:length])
        kept.append(len(evidence.collectors))
        if evidence.collectors:
            assert evidence.unreached is None
            assert "the answer ends in the middle" in evidence.detail
            assert evidence.collectors.items() <= whole.collectors.items()
            assert evidence.probe == whole.probe
        else:
            assert evidence.unreached in (Unreached.GARBLED, Unreached.CUT)
    assert kept == sorted(kept)
    assert 15 < kept[-1] < 20


def test_of_a_cut_answer_nothing_is_kept_that_its_checksums_do_not_vouch_for() -> None:
    packed = zlib.compress(json.dumps(LONG).encode())
    lines = output_of(packed).split("\n")[:-1]
    damaged = [line[:-9] + ("A" if line[-9] != "A" else "B") + line[-8:] if ":3:" in line else line for line in lines]
    assert decoded("\n".join(lines)).collectors
    assert decoded("\n".join(damaged)).unreached is Unreached.CUT
    assert decoded("\n".join(lines[:3] + lines[4:])).unreached is Unreached.CUT
    assert decoded("\n".join(lines + lines[1:2])).unreached is Unreached.CUT


def test_an_answer_that_is_cut_before_its_first_collector_is_no_evidence() -> None:
    output = f"Welcome\n{FRAME}"
    begun = output.index(BEGIN) + len(BEGIN)
    for length in range(len(output)):
        expected = Unreached.GARBLED if length < begun else Unreached.CUT
        assert decoded(output[:length]).unreached is expected, length


def test_a_cut_answer_keeps_the_last_words() -> None:
    evidence = decoded(f"{BEGIN}\nTraceback (most recent call last):\nMemoryError\n\n")
    assert evidence.unreached is Unreached.CUT
    assert evidence.detail.endswith("its last words: MemoryError")


def test_without_a_frame_the_answer_is_garbled_and_shown_without_control_characters() -> None:
    evidence = decoded(b"\x1b]0;evil\x07\xff\xfe bash: python3: \x00 permission denied\r\n" + b"x" * 9000)
    assert evidence.unreached is Unreached.GARBLED
    assert "python3: permission denied" in evidence.detail
    assert evidence.detail.isprintable()
    assert len(evidence.detail) < 300


@pytest.mark.parametrize("output", ["", "\n \r\n"])
def test_an_empty_answer_says_so(output: str) -> None:
    assert decoded(output) == NodeEvidence("gpu001", unreached=Unreached.GARBLED, detail="the answer is empty")


def test_a_node_without_python_says_what_it_has() -> None:
    evidence = decoded(f"Welcome\n{NONCE}:no-python: /usr/bin/python3 (Python 3.6.8)\n")
    assert evidence.unreached is Unreached.NO_PYTHON
    assert "/usr/bin/python3 (Python 3.6.8)" in evidence.detail


@pytest.mark.parametrize(
    "lines",
    [
        framed(nonce="cp9999999999"),
        framed() + framed(),
        framed() + framed()[1:],
        framed()[:3] + framed()[4:],
        framed()[:3] + framed()[2:],
        [line.replace(":1:", ":0:") for line in framed()],
        [line.replace(":1:", ":1:A") for line in framed()],
        [f"{NONCE}:1:A." if f"{NONCE}:1:" in line else line for line in framed()],
        [line[:-9] + "00000000." if ":end:" in line else line for line in framed()],
    ],
    ids=["nonce", "twice", "end-twice", "line-lost", "line-twice", "number", "letter", "no-base64", "checksum"],
)
def test_a_damaged_frame_is_garbled(lines: list[str]) -> None:
    assert decoded("\n".join(lines)).unreached is Unreached.GARBLED


def collector(**more: object) -> dict[str, object]:
    return {"probe": {}, "collectors": {"boot": {"status": "read", **more}}}


@pytest.mark.parametrize(
    "answer",
    [
        b'{"probe": {}, "collectors": {"boot": {"status": "read", "value": NaN}}}',
        b'{"probe": {}, "collectors": {"boot": {"status": "read", "value": -Infinity}}}',
        b'{"probe": {}, "collectors": {"boot": {"status": "read", "value": 1e999}}}',
        b'{"probe": {}, "collectors": {}, "collectors": {}}',
        b'{"probe": {}, "collectors": {"boot": {"status": "read", "status": "absent"}}}',
        b'{"probe": {}, "collectors": {"boot": {"status": "read", "value": ' + b"9" * 5000 + b"}}}",
        b'{"probe": {}, "collectors": {"boot": {"status": "read", "value": ' + b"[" * 9000 + b"]" * 9000 + b"}}}",
        b'{"probe": {}, "collectors": {"boot": {"status": "read", "value": ' + b"[" * 40 + b"]" * 40 + b"}}}",
        b'{"probe": {}, "collectors": {"boot": {"status": "read", "value": [' + b"0," * 600_000 + b"0]}}}",
        b'{"probe": {}, "collectors": {"boot": {"status": "read", "value": "\xff"}}}',
        b'{"probe": {}, "collectors": {}} {}',
        b"[]",
        b"",
        {"probe": {}, "collectors": []},
        {"probe": [], "collectors": {}},
        {"collectors": {}},
        collector(status="fine"),
        collector(status=["read"]),
        collector(seconds="1"),
        collector(seconds=True),
        collector(detail=None),
        {"probe": {}, "collectors": {"boot": "read"}},
    ],
    ids=lambda answer: repr(answer)[:60],
)
def test_an_answer_that_no_probe_sends_is_garbled(answer: object) -> None:
    evidence = decoded("\n".join(framed(answer)))
    assert evidence.unreached is Unreached.GARBLED
    assert evidence.collectors == {}
    assert evidence.detail.isprintable()


@pytest.mark.long
def test_a_small_answer_that_grows_without_end_is_garbled() -> None:
    packed = zlib.compress(b" " * (frame.MAX_DECODED_BYTES + 1))
    assert len(packed) < 40_000
    evidence = decoded(output_of(packed))
    assert evidence.unreached is Unreached.GARBLED
    assert str(frame.MAX_DECODED_BYTES) in evidence.detail


@pytest.mark.parametrize("packed", [b"", b"no zlib", zlib.compress(b"{}")[:-1], zlib.compress(b"{}") + b"more"])
def test_a_frame_that_does_not_decompress_is_garbled(packed: bytes) -> None:
    assert decoded(output_of(packed)).unreached is Unreached.GARBLED


def test_half_a_surrogate_pair_is_replaced_so_that_the_evidence_can_be_written() -> None:
    evidence = decoded("\n".join(framed(collector(value=["\ud800", "\U0001f600"], detail="\udcff"))))
    assert evidence.collectors["boot"].value == ["?", "\U0001f600"]
    json.dumps(to_json(evidence), ensure_ascii=False).encode()


def test_a_node_that_was_not_reached_stays_so() -> None:
    evidence = decode("gpu001", Answer(b"", Unreached.REFUSED, "port 22", 1.5), NONCE)
    assert evidence == NodeEvidence("gpu001", unreached=Unreached.REFUSED, detail="port 22", seconds=1.5)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@pytest.mark.long
@given(value=json_values)
def test_any_value_comes_through(value: Any) -> None:
    assert decoded("\n".join(framed(collector(value=value)))).collectors["boot"].value == json.loads(json.dumps(value))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    edits=st.lists(
        st.tuples(st.integers(0, len(FRAME)), st.integers(0, 200), st.binary(max_size=90)), min_size=1, max_size=4
    )
)
@example(edits=[(0, 0, FRAME.encode())])
def test_a_mutated_frame_is_the_same_evidence_or_none(edits: list[tuple[int, int, bytes]]) -> None:
    output = FRAME.encode()
    for at, removed, inserted in edits:
        output = output[:at] + inserted + output[at + removed :]
    evidence = decoded(output)
    assert evidence == WHOLE or evidence.unreached in (Unreached.CUT, Unreached.GARBLED)


@given(packed=st.binary(max_size=2000).map(zlib.compress) | st.binary(max_size=500))
def test_a_hostile_frame_is_never_an_exception(packed: bytes) -> None:
    assert decoded(output_of(packed)).unreached is Unreached.GARBLED


@given(output=st.binary(max_size=500))
def test_noise_alone_is_never_evidence(output: bytes) -> None:
    assert decoded(output).unreached is Unreached.GARBLED
