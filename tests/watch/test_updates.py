"""Samplers' messages are decoded strictly; what an untrusted node sends only affects its own connection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.evidence.gpu.collect_nvml_samples import COLUMNS as OF_GPU
from clusterproof.plugins.evidence.host.collect_host_samples import COLUMNS as OF_HOST
from clusterproof.plugins.evidence.network.collect_network_samples import COLUMNS as OF_NETWORK
from clusterproof.plugins.evidence.storage.collect_lustre_samples import COLUMNS as OF_LUSTRE
from clusterproof.plugins.training_run.rank_processes import RankLook
from clusterproof.plugins.training_run.sample_columns import GPU_COLUMNS, HOST_COLUMNS
from clusterproof.plugins.watch.updates import (
    MAX_LINE,
    VALUES_BY_SOURCE,
    Hello,
    LinesLost,
    LogUpdate,
    NotUnderstood,
    Tick,
    Update,
    UpdateStream,
)

NONCE = "cp0123456789"
HELLO = {"sampler": 1, "boot_id": "5f0c", "python": "3.8.10", "uid": 0, "sudo": "", "log": "", "now": 1.7e9, "up": 9.5}
TICK = {"now": 1.7e9, "up": 9.5, "gpu": [[1] * 14], "host": [1] * 7, "network": [None] * 6}


def line(data: object) -> bytes:
    return f"{NONCE} {json.dumps(data)}\n".encode()


def updates(*lines: bytes) -> list[Update]:
    return list(UpdateStream(NONCE).updates(b"".join(lines)))


def test_the_columns_are_those_of_the_programs_that_sample() -> None:
    assert tuple(GPU_COLUMNS) == OF_GPU
    assert tuple(HOST_COLUMNS) == (*OF_HOST, *OF_NETWORK, *OF_LUSTRE)
    counts = {"host": len(OF_HOST), "network": len(OF_NETWORK), "lustre": len(OF_LUSTRE)}
    assert counts == VALUES_BY_SOURCE


def test_a_stream_is_read_in_any_pieces_and_noise_is_passed_over() -> None:
    stream = UpdateStream(NONCE)
    data = b"Welcome!\r\n" + f"{NONCE}:begin.\n".encode() + line(HELLO) + b"noise\n" + line(TICK)
    updates_read = [update for at in range(len(data)) for update in stream.updates(data[at : at + 1])]
    assert [type(update) for update in updates_read] == [Hello, Tick]
    assert stream.noise == "noise"
    tick = updates_read[1]
    assert isinstance(tick, Tick)
    assert (len(tick.gpu[0]), len(tick.host)) == (14, 15)
    assert tick.host[-2:] == (None, None)  # Lustre reported nothing


def test_a_line_that_comes_twice_is_taken_once_and_one_that_is_lost_is_reported() -> None:
    stream = UpdateStream(NONCE)
    ticks = [line({**TICK, "n": number, "now": 1.7e9 + number}) for number in range(5)]
    assert len(list(stream.updates(b"".join(ticks[:3])))) == 3
    again = [update.now - 1.7e9 for update in stream.updates(b"".join(ticks[1:4])) if isinstance(update, Tick)]
    assert again == [3.0]
    with pytest.raises(LinesLost, match="lines of its sampler were lost: 1; expected every one"):
        list(stream.updates(line({**TICK, "n": 5})))


def test_lines_of_the_log_are_bounded_and_printable() -> None:
    (update,) = updates(line({"now": 1.0, "up": 2.0, "log": [[7, 3.5, "NVRM:\x1b[2J" + "x" * 5000, 2]]}))
    assert isinstance(update, LogUpdate)
    assert len(update.lines[0].text) < 1100
    assert "\x1b" not in update.lines[0].text


def test_what_ranks_do_comes_with_a_tick() -> None:
    (update,) = updates(line({**TICK, "ranks": [[3, 4, "gpu001:29500", "S", "futex_do_wait", 1.5]]}))
    assert isinstance(update, Tick)
    assert update.ranks == (RankLook(3, 4, "gpu001:29500", "S", "futex_do_wait", 1.5),)


def test_how_many_lines_were_overwritten_comes_with_or_without_others() -> None:
    read = updates(line({"up": 2.0, "log": [], "lost": 7}), line({"up": 2.0, "log": []}))
    assert [update.lost for update in read if isinstance(update, LogUpdate)] == [7, 0]


def test_an_error_of_the_log_comes_with_its_level() -> None:
    (update,) = updates(line({"up": 2.0, "log": [[7, 3.5, "mlx5_core", 0], [8, 3.5, "mlx5_core", 2, 3]]}))
    assert isinstance(update, LogUpdate)
    assert [(line_read.left_out, line_read.level) for line_read in update.lines] == [(0, 7), (2, 3)]


@pytest.mark.parametrize(
    "data",
    [
        {**TICK, "n": "7"},
        {**TICK, "n": True},
        [],
        {"now": 1.0},
        {**TICK, "gpu": [[1] * 13]},
        {**TICK, "gpu": [[1] * 14] * 129},
        {**TICK, "gpu": [["1"] * 14]},
        {**TICK, "gpu": [[True] * 14]},
        {**TICK, "host": [1e300] * 7},
        {**TICK, "host": 5},
        {**TICK, "up": -1},
        {**TICK, "up": None},
        {**TICK, "facts": {"nvml": {"-1": {}}}},
        {**TICK, "facts": {"nvml": {"3": []}}},
        {**TICK, "late": {"gpu": 5}},
        {**TICK, "ranks": 5},
        {**TICK, "ranks": [[0, 4, "gpu001:29500", "S", "futex_do_wait"]]},
        {**TICK, "ranks": [[0, 4, "", "S", "", 1.5]] * 129},
        {**TICK, "gpu_fixed": [{"uuid": 5}]},
        {"up": 1.0, "log": [[1, 2.0, "text"]]},
        {"up": 1.0, "log": [], "lost": "many"},
        {"up": 1.0, "log": [], "lost": -1},
        {"up": 1.0, "log": [["1", 2.0, "text", 0]]},
        {"up": 1.0, "log": [[1, 2.0, "text", 0, "3"]]},
        {"up": 1.0, "log": [[1, 2.0, "text", 0, 3, 3]]},
        {**HELLO, "boot_id": 7},
    ],
)
def test_what_has_not_the_form_ends_the_connection(data: Any) -> None:
    with pytest.raises(NotUnderstood):
        updates(line(data))


def test_numbers_that_are_none_and_lines_without_an_end_are_refused() -> None:
    with pytest.raises(NotUnderstood):
        updates(f'{NONCE} {{"now": NaN, "up": 1}}\n'.encode())
    with pytest.raises(NotUnderstood, match="a line of more than"):
        updates(b"x" * (MAX_LINE + 1))
    with pytest.raises(NotUnderstood, match=r"no Python 3\.8 or newer"):
        updates(f"{NONCE}:no-python: python3 (3.6.8)\n".encode())


@given(st.binary(max_size=200))
def test_nothing_that_a_node_sends_raises_anything_else(data: bytes) -> None:
    try:
        updates(NONCE.encode() + b" " + data + b"\n")
    except NotUnderstood as wrong:
        assert str(wrong).isprintable()  # noqa: PT017


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(sorted({*TICK, *HELLO, "facts", "late", "gpu_fixed", "lustre"})), json_values)
def test_no_value_in_any_place_raises_anything_else(key: str, value: Any) -> None:
    for whole in (TICK, HELLO, {"up": 1.0, "log": []}):
        try:
            understood = updates(line({**whole, key: value}))
        except NotUnderstood as wrong:
            assert str(wrong)  # noqa: PT017
        else:
            assert understood
