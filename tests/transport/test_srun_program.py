"""The program for the submit host: how long it may be, and what it starts on the nodes."""

from __future__ import annotations

import os

import pytest

from clusterproof.plugins.agent.parts import parts
from clusterproof.plugins.agent.payload import new_nonce, program, unpacked
from clusterproof.plugins.agent.program import ProbeOptions, collector_names
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evaluation.index import collectors_of, read_index
from clusterproof.plugins.transport import Limits, Program, Unusable, connection_for
from clusterproof.plugins.transport.srun.connection import LAUNCH_CHARACTERS, SPARE_CHARACTERS, launch_program
from clusterproof.plugins.transport.srun.launch import repacked
from clusterproof.plugins.transport.ssm import LONGEST_PROGRAM
from tests.transport.launch_request import REQUEST

EVERYTHING = collector_names()


def everything() -> Program:
    """The program with every collector."""
    return program(EVERYTHING, ProbeOptions(), (), False)


@pytest.mark.long
def test_a_program_that_systems_manager_takes_reaches_its_nodes_through_a_controller_too() -> None:
    names = [f"ip-10-{n * 7 % 250}-{n * 13 % 250}-{n * 31 % 250}" for n in range(1000)]
    through = connection_for("srun").longest_program(Limits(settings={"submit_host": "hyperpod:controller"}))
    (_, longest), *_ = parts(EVERYTHING, ProbeOptions(), (), False, through).programs
    request = {**REQUEST, "command": longest.command, "names": names}
    made = launch_program(request, "cp1", False, LONGEST_PROGRAM)
    assert len(made.command) < LONGEST_PROGRAM + SPARE_CHARACTERS == 65_450
    with pytest.raises(Unusable, match="expected at most 65450: with fewer collectors"):
        launch_program({**request, "command": os.urandom(60_000).hex()}, "cp1", False, LONGEST_PROGRAM)


@pytest.mark.parametrize("left_out", ["versions", "services", "naming"])
def test_a_program_that_fits_is_started_whatever_its_nonce_and_the_options_are(left_out: str) -> None:
    options = "--qos=high --account=" + os.urandom(100).hex()
    settings = {"submit_host": "hyperpod:controller", "srun_options": options, "partition": "gpu-large"}
    longest = connection_for("srun").longest_program(Limits(settings=settings))
    asked = replace(ProbeOptions(), max_characters=10_000_000)
    (_, fits), *_ = parts(frozenset(EVERYTHING) - {left_out}, asked, (), False, longest).programs
    for nonce in (new_nonce() for _ in range(4)):
        request = {
            **REQUEST,
            "name": f"clusterproof-{nonce}",
            "mark": f"{nonce}:node:",
            "names": [f"ip-10-181-{n}-1" for n in range(3)],
            "options": options.split(),
            "partition": "gpu-large",
            "command": fits.command.replace(fits.nonce, new_nonce()),
        }
        launch_program(request, nonce, False, LONGEST_PROGRAM)


def test_a_whole_preflight_goes_through_a_controller_in_one_program() -> None:
    entries = [
        entry for entry in read_index(occasions=["preflight"]).values() if ["control_plane"] not in entry["marks"]
    ]
    longest = connection_for("srun").longest_program(Limits(settings={"submit_host": "hyperpod:controller"}))
    collectors = collectors_of(entries) & set(EVERYTHING)
    assert len(parts(collectors, ProbeOptions(), (), False, longest).programs) == 1


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({}, 900_000),
        ({"submit_host": "ssh:login"}, 900_000),
        ({"submit_host": "hyperpod:controller"}, LONGEST_PROGRAM + SPARE_CHARACTERS - LAUNCH_CHARACTERS),
        ({"beside": "hyperpod"}, LONGEST_PROGRAM),
        ({"beside": "ssh"}, 900_000),
    ],
    ids=str,
)
def test_a_program_is_no_longer_than_every_way_takes_that_it_goes(settings: dict[str, str], longest: int) -> None:
    assert connection_for("srun").longest_program(Limits(settings=settings)) == longest


@pytest.mark.long
@pytest.mark.parametrize("command", ["true", "echo begin. ", ""], ids=["a word", "words", "every collector"])
def test_the_submit_host_starts_the_very_command_that_was_asked_for(command: str) -> None:
    command = command or everything().command
    assert repacked(*unpacked(command)) == command


@pytest.mark.long
@pytest.mark.parametrize(("longest", "is_named"), [(LONGEST_PROGRAM, False), (None, True)])
def test_where_there_is_no_room_for_names_all_nodes_are_asked(longest: int | None, is_named: bool) -> None:
    names = ["a", *(os.urandom(40).hex() for _ in range(2000))]
    made = launch_program({**REQUEST, "names": names}, "cp1", False, longest)
    assert (repr(names) in unpacked(made.command)[1]) is is_named
    assert ("'names': []" in unpacked(made.command)[1]) is not is_named
