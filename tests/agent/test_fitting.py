"""An answer that is too long for its connection: what stays, what goes, and that it is said."""

from __future__ import annotations

import json
import random
import zlib
from typing import Any

from clusterproof.plugins.agent import sending
from clusterproof.plugins.agent.sending import LEAST_LINES, fitted


def noise(count: int, of: str = "") -> str:
    """So many characters that become half as many bytes when they are compressed."""
    return random.Random(f"{of}{count}").randbytes(count // 2).hex()


def answer(lines: list[list[Any]], **collectors: object) -> dict[str, Any]:
    """The answer of a probe: a kernel log of these lines, and these collectors beside it."""
    values = {**collectors, "kernel_log": {"lines": lines, "truncated": False}}
    data = {name: {"status": "read", "value": value, "seconds": 0.1} for name, value in values.items()}
    return {"probe": {}, "collectors": data}


def after(data: dict[str, Any], room_bytes: int) -> dict[str, Any]:
    """The collectors that come of it."""
    text = fitted(data, room_bytes)
    assert len(zlib.compress(text, 6)) <= room_bytes
    return dict(json.loads(text)["collectors"])


def lines_of(begins: str, count: int, first_s: float = 0.0) -> list[list[Any]]:
    return [[first_s + n, f"{begins} {noise(200 + n, begins)}"] for n in range(count)]


def test_an_answer_that_fits_stays_as_it_is() -> None:
    data = answer(lines_of("Lustre:", 9), boot={"uptime_s": 1})
    assert after(json.loads(json.dumps(data)), 10_000) == data["collectors"]


def test_the_oldest_lines_of_the_longest_class_go_and_are_counted() -> None:
    storm, others = lines_of("LustreError:", 200), lines_of("EDAC MC0:", 20)
    storm[3].append(40)  # forty lines like it were left out before
    collectors = after(answer(others + storm, boot={"uptime_s": 1}), 12_000)
    log = collectors["kernel_log"]["value"]
    kept = [line for line in log["lines"] if line[1].startswith("Lustre")]
    assert [line for line in log["lines"] if line not in kept] == others
    assert kept == storm[-len(kept) :]
    assert log["cut"] == {"file_servers": [200 - len(kept) + 40, storm[-len(kept) - 1][0]]}
    assert collectors["boot"]["value"] == {"uptime_s": 1}


def test_what_is_worst_goes_last() -> None:
    xids = lines_of("NVRM: Xid (PCI:0000:53:00): 79,", 40)
    collectors = after(answer(xids + lines_of("nvidia:", 30, 50.0) + lines_of("Lustre:", 30, 90.0)), 10_500)
    log = collectors["kernel_log"]["value"]
    assert [line for line in log["lines"] if "Xid" in line[1]] == xids
    assert set(log["cut"]) == {"others", "file_servers"}
    assert len(log["lines"]) >= len(xids) + LEAST_LINES


def test_where_the_log_is_short_the_longest_collector_goes_whole_and_says_why() -> None:
    collectors = after(answer(lines_of("nvidia:", 3), mounts={"all": noise(9000)}, pci={"all": noise(2000)}), 4000)
    assert collectors["mounts"] == {"status": "cut", "too_long": True, "seconds": 0.1}
    assert collectors["pci"]["status"] == collectors["kernel_log"]["status"] == "read"


def test_a_packed_answer_of_so_many_bytes_is_a_frame_of_no_more_characters() -> None:
    nonce = "cp0123456789"
    for room in (1000, 23_000, 100_000):
        packed = random.Random(room).randbytes(sending.room_bytes(room))
        lines = [sending.begin(nonce), *sending.lines(packed, nonce, sending.WIDE_BYTES)]
        assert sum(len(line) + 1 for line in lines) <= room
