"""Users of the node and the state folder: they decide nothing through it, and delay nobody."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.integrations.slurm.folder import KEPT_S
from clusterproof.integrations.slurm.state import State
from tests.integrations.slurm.calls import NOWHERE, state_in

SOMEBODY = 65534
LOCKS = """
exec 8<"$1" 9<"$2"
flock --nonblock 8 && flock --nonblock 9 && echo locked
cat
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: to be another user too")


@pytest.fixture
def state(tmp_path: Path) -> State:
    """A state folder below folders that any user may list and only root may write."""
    for folder in tmp_path.parents:
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    tmp_path.chmod(0o755)
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    return state_in(folder)


def everybodys(state: State) -> str:
    Path(state.folder).chmod(0o777)
    return f"{state.folder} may be written by others than root"


def sticky(state: State) -> str:
    Path(state.folder).chmod(0o1777)
    return f"{state.folder} may be written by others than root"


def of_a_group(state: State) -> str:
    Path(state.folder).chmod(0o775)
    return f"{state.folder} may be written by others than root"


def somebodys(state: State) -> str:
    os.chown(state.folder, SOMEBODY, SOMEBODY)
    return f"{state.folder} belongs to user {SOMEBODY}"


def below_everybodys(state: State) -> str:
    Path(state.folder).parent.chmod(0o777)
    return f"{Path(state.folder).parent} may be written by others than root"


def where_somebody_leads(state: State) -> str:
    """The folder's place is taken by a user's link to a folder of root's."""
    Path(state.folder).rename(Path(state.folder).with_name("other"))
    Path(state.folder).symlink_to("other")
    os.lchown(state.folder, SOMEBODY, SOMEBODY)
    return f"{state.folder} belongs to user {SOMEBODY}"


@pytest.mark.parametrize(
    "spoil",
    [everybodys, sticky, of_a_group, somebodys, below_everybodys, where_somebody_leads],
    ids=lambda f: f.__name__,
)
def test_a_folder_in_which_others_decide_is_named_and_not_used(state: State, spoil: Callable[[State], str]) -> None:
    state.write("verdict", {"number": 1})
    why = spoil(state)
    assert state.prepare() == f"{why}; nothing is remembered from job to job"
    assert state.read("verdict") == {}
    with pytest.raises(OSError, match="Permission denied"):
        state.write("verdict", {"number": 2})
    with state.locked():
        pass
    state.forget("verdict")
    assert (Path(state.folder) / "verdict.json").read_text() == '{"number": 1}'


def test_a_folder_to_which_roots_own_link_leads_is_used(state: State) -> None:
    led = state_in(Path(state.folder).with_name("link"))
    Path(led.folder).symlink_to(state.folder)
    assert led.prepare() == ""
    led.write("verdict", {"number": 1})
    assert state.read("verdict") == {"number": 1}


def test_the_folders_above_are_made_for_root_to_write_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = state_in(tmp_path / "lib" / "clusterproof" / "slurm")
        assert made.prepare() == ""
        made.write("jobs/42", {})
    finally:
        os.umask(before)
    folder = Path(made.folder)
    modes = [path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / "jobs")]
    assert modes == [0o755, 0o700, 0o700]


def test_a_record_that_somebody_has_written_is_none(state: State) -> None:
    """As after a time when everybody could write to the folder."""
    state.write("verdict", {"number": 1})
    os.chown(Path(state.folder) / "verdict.json", SOMEBODY, SOMEBODY)
    assert state.read("verdict") == {}


@pytest.mark.parametrize("mode", [0o666, 0o620])
def test_a_record_that_others_may_write_is_none(state: State, mode: int) -> None:
    state.write("verdict", {"number": 1})
    (Path(state.folder) / "verdict.json").chmod(mode)
    assert state.read("verdict") == {}


def test_a_link_in_the_folder_is_not_followed(state: State) -> None:
    elsewhere = Path(state.folder).with_name("elsewhere.json")
    elsewhere.write_text('{"number": 1}')
    (Path(state.folder) / "verdict.json").symlink_to(elsewhere)
    (Path(state.folder) / f".cursor.json.{os.getpid()}").symlink_to(elsewhere)
    assert state.read("verdict") == {}
    state.write("verdict", {"number": 2})
    state.write("cursor", {"number": 3})
    assert elsewhere.read_text() == '{"number": 1}'
    assert (state.read("verdict"), state.read("cursor")) == ({"number": 2}, {"number": 3})


def test_a_pipe_in_the_folder_is_not_waited_for(state: State) -> None:
    os.mkfifo(Path(state.folder) / "verdict.json", 0o600)
    assert state.read("verdict") == {}


def test_a_link_to_a_folder_is_neither_emptied_nor_written_into(state: State) -> None:
    elsewhere = Path(state.folder).with_name("elsewhere")
    elsewhere.mkdir()
    file = elsewhere / "passwd"
    file.write_text("")
    os.utime(file, (time.time() - 2 * KEPT_S,) * 2)
    (Path(state.folder) / "jobs").symlink_to(elsewhere)
    state.remove_old()
    with contextlib.suppress(OSError):
        state.write("jobs/42", {})
    assert list(elsewhere.iterdir()) == [file]


def test_a_lock_that_somebody_holds_is_not_waited_for(state: State) -> None:
    """Any user may lock what he may read: the folder, and a file with too wide a mode."""
    with state.locked():
        pass
    (lock,) = Path(state.folder).iterdir()
    lock.chmod(0o644)
    with subprocess.Popen(
        ["/bin/sh", "-c", LOCKS, "sh", state.folder, str(lock)],
        user=SOMEBODY,
        group=SOMEBODY,
        extra_groups=[],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "locked\n"
        with state.locked():
            state.write("verdict", {"number": 1})
        other.communicate()


def test_the_lock_is_made_for_root_alone(state: State) -> None:
    before = os.umask(0)
    try:
        with state.locked():
            (lock,) = Path(state.folder).iterdir()
    finally:
        os.umask(before)
    assert lock.stat().st_mode & 0o777 == 0o600


def test_the_holder_of_the_lock_is_waited_for(state: State) -> None:
    held = f"""
import sys, time
from pathlib import Path
from clusterproof.integrations.slurm.state import State
state = State({state.folder!r}, {NOWHERE!r})
with state.locked():
    print("locked", flush=True)
    sys.stdin.read()
    state.write("verdict", {{"number": 1}})
"""
    with subprocess.Popen(
        [sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        assert other.stdin
        assert other.stdout.readline() == "locked\n"
        other.stdin.close()
        with state.locked():
            assert state.read("verdict") == {"number": 1}
