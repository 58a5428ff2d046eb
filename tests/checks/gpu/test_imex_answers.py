"""Output of nvidia-imex-ctl with gaps or unknown words: it fails no tray, and passes none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.checks.gpu.racks import ADDRESSES, DRIVER, NAMES, evaluated, rack, tray
from tests.testbed.imex import domain

FAIL, CONCERN, INCOMPLETE, PASS = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.PASS
NODE = "Node #{0:<3} - {1:<15} - READY                - Version: {2}"


def table(letters: dict[int, str] | None = None) -> str:
    """The same as a table; `letters` are the first tray's connections that are not C."""
    listed = [NODE.format(number, address, DRIVER) for number, address in enumerate(ADDRESSES)]
    rows = [["C"] * 18 for _ in ADDRESSES]
    for number, letter in (letters or {}).items():
        rows[0][number] = letter
    matrix = [f"       {number:<9}{'   '.join(row)}" for number, row in enumerate(rows)]
    head = " Nodes From\\To  " + "".join(f"{number:<4}" for number in range(18))
    return "\n".join(["Nodes:", *listed, "", head, *matrix, "Domain State: UP", ""])


def answer(**own: Any) -> str:
    """A complete domain's JSON with these values for the first tray; None removes one."""
    printed = json.loads(domain(DRIVER, addresses=ADDRESSES, names=NAMES))
    printed["nodes"]["0"].update(own)
    printed["nodes"]["0"] = {key: value for key, value in printed["nodes"]["0"].items() if value is not None}
    return json.dumps(printed)


def connections(**changed: Any) -> dict[str, Any]:
    links = json.loads(domain(DRIVER, addresses=ADDRESSES, names=NAMES))["nodes"]["0"]["connections"]
    return {**links, **{key[1:]: value for key, value in changed.items()}}


WHOLE = table()
OWN_ROW = WHOLE.index("       0  ")
NOT_SHOWN = "no state is shown for 17 of 17 IMEX connections to other trays: tray01"


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        (
            table({5: "W"}),
            "no state is shown for 1 of 17 IMEX connections to other trays: tray05 (10.1.2.5); expected CONNECTED",
        ),
        (
            table({5: "!X!", 6: "?"}),
            "no state is shown for 2 of 17 IMEX connections to other trays: tray05 (10.1.2.5), tray06",
        ),
        (WHOLE.replace(WHOLE[OWN_ROW : WHOLE.index("       1  ")], ""), NOT_SHOWN),
        (WHOLE[: OWN_ROW + 40], "it may be cut"),
        (WHOLE[: WHOLE.index("Node #9")], "it may be cut"),
        (answer(connections=None), NOT_SHOWN),
        (answer(connections=[1]), NOT_SHOWN),
        (
            answer(connections=connections(_3={"host": "10.1.2.3"})),
            "no state is shown for 1 of 17 IMEX connections to other trays: tray03",
        ),
        (
            answer(connections=connections(_3={"status": "N/A"})),
            "no state is shown for 1 of 17 IMEX connections to other trays: tray03",
        ),
        (answer(status=None), "no state is shown for nvidia-imex of this tray; expected READY"),
        (answer(status="N/A"), "no state is shown for nvidia-imex of this tray; expected READY"),
    ],
)
def test_what_the_program_does_not_show_is_incomplete(printed: str, message: str) -> None:
    expect(evaluated("imex_domain", tray(0, output=printed), *rack(first=1, trays=17)), INCOMPLETE, message)


CUT_OFF = connections(**{f"_{at}": {"host": ADDRESSES[at], "status": "DISCONNECTED"} for at in range(1, 18)})


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"connections": CUT_OFF}, "17 of 17 IMEX connections to other trays are not up: DISCONNECTED with tray01"),
        ({"version": "NO_GPU"}, "nvidia-imex runs without GPUs; expected it to see this tray's GPUs"),
        ({"version": "570.1"}, f"nvidia-imex uses driver version 570.1; expected {DRIVER}, the loaded driver"),
    ],
)
def test_what_the_program_shows_is_evaluated_without_its_own_state(own: dict[str, Any], message: str) -> None:
    result = evaluated("imex_domain", tray(0, output=answer(status="N/A", **own)), *rack(first=1, trays=17))
    assert message in result.message
    assert "no state is shown for nvidia-imex of this tray; expected READY" in result.message


def test_a_daemon_that_is_known_to_run_is_evaluated_though_systemd_does_not_answer() -> None:
    daemon = {"config": "/etc/nvidia-imex/config.cfg", "active_s": 86400.0}
    asked = {"command": "nvidia-imex-ctl -N -j -H", "exit": 0, "output": answer(connections=CUT_OFF)}
    imex = {"nodes": list(ADDRESSES), "channels": [0], "channel_count": 2048, "domain": asked, "daemon": daemon}
    known = tray(0, imex=imex)
    own = replace(known, collectors={**known.collectors, "services": Collected(Status.TIMED_OUT)})
    expect(evaluated("imex_domain", own, *rack(first=1, trays=17)), FAIL, "17 of 17 IMEX connections to other trays")


@pytest.mark.long
def test_what_it_does_not_show_hides_no_connection_that_is_down() -> None:
    result = evaluated("imex_domain", tray(0, output=table({3: "!V!", 5: "W"})), *rack(first=1, trays=17))
    expect(result, INCOMPLETE, "1 of 17 IMEX connections to other trays are not up: VERSION_MISMATCH with tray03")
    assert "no state is shown for 1 of 17" in result.message
    most = table({**dict.fromkeys(range(1, 16), "!V!"), 16: "W", 17: "W"})
    expect(evaluated("imex_domain", tray(0, output=most), *rack(first=1, trays=17)), FAIL, "15 of 17 IMEX connections")


@pytest.mark.parametrize("version", [None, "N/A", ""])
def test_a_version_that_is_not_shown_is_no_other_version(version: str | None) -> None:
    assert evaluated("imex_domain", tray(0, output=answer(version=version)), *rack(first=1)).verdict is PASS


@pytest.mark.parametrize("own", [9, 1])
def test_a_daemon_that_has_not_read_the_list_again_is_named(own: int) -> None:
    printed = domain(DRIVER, addresses=ADDRESSES[:own], names=NAMES[:own])
    trays = [tray(number, output=printed) for number in range(18)]
    expect(
        evaluated("imex_domain", *trays),
        CONCERN,
        f"{own} trays in the running domain, 18 in nodes_config.cfg; expected as many, since nvidia-imex reads it once",
    )


def test_an_address_that_the_list_has_twice_is_one_tray_of_the_domain() -> None:
    trays = [tray(number, nodes=(*ADDRESSES, ADDRESSES[3])) for number in range(18)]
    assert evaluated("imex_domain", *trays).verdict is PASS


def test_whether_a_domain_has_all_trays_is_unknown_without_the_list() -> None:
    output = {"command": "nvidia-imex-ctl -N", "exit": 0, "output": WHOLE}
    expect(evaluated("imex_domain", tray(0, imex={"domain": output}), *rack(first=1)), INCOMPLETE, "nodes_config.cfg")


def test_a_list_of_names_is_that_of_the_same_trays_by_address() -> None:
    trays = [tray(number, nodes=NAMES if number == 0 else ADDRESSES) for number in range(18)]
    assert evaluated("imex_nodes", *trays).verdict is PASS
    assert evaluated("imex_nodes", *trays[1:], trays[0]).verdict is PASS
    odd = [tray(0, nodes=NAMES[::-1]), *trays[1:]]
    expect(evaluated("imex_nodes", *odd), FAIL, "differs from that of tray17, tray16")


def test_addresses_of_ipv6_are_known_by_the_answers_of_imex() -> None:
    listed = tuple(f"fd00::{number}" for number in range(18))
    printed = domain(DRIVER, addresses=listed, names=NAMES)
    trays = [tray(number, nodes=listed, output=printed) for number in range(18)]
    assert evaluated("imex_nodes", *trays).verdict is PASS
    odd = tray(0, nodes=listed[::-1], output=printed)
    expect(evaluated("imex_nodes", odd, *trays[1:]), FAIL, "differs from that of tray17, tray16")
