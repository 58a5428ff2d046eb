"""Valid settings, in TOML and in the plain lines that a prolog reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.integrations.slurm import our_drains
from clusterproof.integrations.slurm.checking import NoVerdict, policy_of
from clusterproof.integrations.slurm.settings import Settings, SettingsError, plain_toml, read_settings
from tests.integrations.slurm.scripts import SCRIPTS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ONLY_ROOT = "may be written by others than root; expected a file that only root writes"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('mode = "drian"', "mode is 'drian' (did you mean drain?); expected observe, drain, off"),
        ("mode = true", "mode is true or false; expected text"),
        ("dedline_s = 5", "'dedline_s' is not a known key (did you mean deadline_s?)"),
        ("deadline_s = 60", "deadline_s is 60; expected 3 to 8"),
        ('state = "var"', "state is 'var'; expected a path that begins with /"),
        ("[health_check]\nresume = 1", "resume is a whole number; expected true or false"),
        ("[health_check]\nmax_drained = 3", "'max_drained' is not a known key"),
        ("mode = ", "is not TOML"),
    ],
)
def test_a_wrong_setting_is_one_clear_line(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "slurm.toml"
    file.write_text(text)
    with pytest.raises(SettingsError) as wrong:
        read_settings(str(file))
    assert says in str(wrong.value)
    assert "\n" not in str(wrong.value)


@pytest.mark.parametrize("writable", ["slurm.toml", "."])
def test_settings_that_others_may_write_are_not_believed(writable: str, tmp_path: Path) -> None:
    file = tmp_path / "slurm.toml"
    file.write_text('mode = "drain"')
    (tmp_path / writable).chmod(0o777)
    with pytest.raises(SettingsError, match=ONLY_ROOT):
        read_settings(str(file))


def test_a_policy_that_others_may_write_is_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[thresholds.memory]\navailable_fail_gib = 1e9\n")
    file.chmod(0o666)
    with pytest.raises(NoVerdict, match=ONLY_ROOT):
        policy_of(Settings(policy=str(file)), frozenset)


def test_the_settings_that_the_documentation_shows_are_the_defaults(tmp_path: Path) -> None:
    text = (SCRIPTS / "install.md").read_text()
    shown = text.partition('    mode = "observe"')[2].partition("\n\nObserve")[0]
    file = tmp_path / "slurm.toml"
    file.write_text("mode = 'observe'" + shown)
    assert read_settings(str(file)) == Settings()
    assert "max_drained_nodes = 10" in file.read_text()


def test_without_settings_it_only_observes(tmp_path: Path) -> None:
    assert read_settings(str(tmp_path / "slurm.toml")) == Settings()
    assert not Settings().drains


@pytest.mark.parametrize(
    ("total", "percent", "nodes", "limit"), [(100, 10, 20, 10), (1000, 10, 20, 20), (4, 10, 20, 1), (0, 0, 5, 1)]
)
def test_the_limit_is_a_share_or_a_number_and_one_node_in_any_case(
    total: int, percent: int, nodes: int, limit: int
) -> None:
    assert our_drains.allowed(total, percent, nodes) == limit


def test_prolog_and_epilog_differ_in_their_name_alone_and_the_health_check_in_what_serves_many_calls() -> None:
    prolog, epilog, health_check = (
        (SCRIPTS / f"clusterproof-{name}").read_text().splitlines()[2:] for name in ("prolog", "epilog", "health-check")
    )
    assert set(prolog) ^ set(epilog) == {"occasion=prolog", "occasion=epilog"}
    assert set(health_check) - set(prolog) == {
        "occasion=health-check",
        "limit_s=55 # the last resort: clusterproof keeps a deadline of its own",
        '"$python" -I -c "$program" "$occasion" </dev/null &',
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        'mode = "drain" # now\n\n[health_check]\n\tresume=false\nmax_drained_nodes = 0\n',
        'mode = "drain"\nmode = "off"',
        "[a]\n[a]",
        "a = 1\n[a]",
        "[a]\n[b]\na = 1",
        'state = "\\u0041"',
        "state = '/var'",
        'state = """/var"""',
        "reuse_s = 060",
        "reuse_s = +60",
        "reuse_s = 1e3",
        "reuse_s = 1_000",
        "mode = off",
        "mode = True",
        "a.b = 1",
        "[a.b]",
        "[[a]]",
        '"mode" = "off"',
        'mode = "off" off',
        'mode = "off\nx"',
        'mode = "off" # \x00',
        'mode = "o\x7f"',
        "caf\u00e9 = 1",
        'mode = "off"\r\n',
        "deadline_s = 1234567890123",
    ],
)
def test_a_plain_text_means_what_it_means_in_toml(text: str) -> None:
    means_the_same(text)


@given(st.text(st.sampled_from("a1_-.=\"'#[]{}, \t\n\r\\+tru\x00\u00e9"), max_size=24))
def test_whatever_is_taken_for_plain_is_toml(text: str) -> None:
    means_the_same(text)


@given(st.lists(st.sampled_from(['a = "x"', "b = 1", "c = true", "[d]", "[e]", "a = 0", "# b", "", " f=false#g"])))
def test_plain_lines_mean_in_any_order_what_they_mean_in_toml(lines: list[str]) -> None:
    means_the_same("\n".join(lines))


def means_the_same(text: str) -> None:
    """A plain line has the same meaning as in TOML; invalid TOML is never plain."""
    try:
        expected = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assert plain_toml(text) is None
        return
    assert plain_toml(text) in (None, expected)
