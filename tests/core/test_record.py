"""Records behave like frozen dataclasses with slots."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from clusterproof.plugins.core.record import as_json, field, names_of, record, replace, required


@record
class Port:
    """One port."""

    name: str
    rate_gbps: float = 100.0
    lanes: list[int] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def words(self) -> str:
        return f"{self.name} at {self.rate_gbps:g}"


@record
class BondedPort(Port):
    """One of a pair."""

    other: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Alike:
    """The same as a dataclass."""

    name: str
    rate_gbps: float = 100.0
    lanes: list[int] = dataclasses.field(default_factory=list)
    known: dict[str, int] = dataclasses.field(default_factory=dict, repr=False, compare=False)


GIVEN: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 200.0), {}),
    (("a", 200.0, [1], {"x": 1}), {}),
    (("a",), {"lanes": [2]}),
    ((), {"lanes": [2], "name": "b"}),
]


@pytest.mark.parametrize(("values", "named"), GIVEN)
def test_it_is_made_and_shown_as_a_dataclass(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    made, alike = Port(*values, **named), Alike(*values, **named)
    assert repr(made) == repr(alike).replace("Alike", "Port")
    assert as_json(made) == dataclasses.asdict(made) == dataclasses.asdict(alike)
    assert [entry.name for entry in dataclasses.fields(made)] == [entry.name for entry in dataclasses.fields(alike)]


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), (("a", 1.0, [], {}, 5), {}), (("a",), {"name": "b"}), (("a",), {"speed": 1})],
    ids=["too few", "too many", "twice", "unknown"],
)
def test_what_a_dataclass_does_not_take_it_does_not_take(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    for kind in (Port, Alike):
        with pytest.raises(TypeError, match=kind.__name__):
            kind(*values, **named)


def test_what_is_equal_has_one_hash_and_what_is_not_compared_does_not_count() -> None:
    assert Port("a", 1.0, [1]) == Port("a", 1.0, [1], {"x": 1})
    unlike: list[object] = [Port("b"), BondedPort("a"), "a"]
    for other in unlike:
        assert Port("a") != other
    plain = [BondedPort("a", 1.0, ()) for _ in range(2)]  # type: ignore[arg-type]
    assert len(set(plain)) == 1


def test_no_value_is_shared_between_records() -> None:
    assert Port("a").lanes is not Port("a").lanes


def test_nothing_of_it_changes() -> None:
    port = Port("a")
    with pytest.raises(AttributeError):
        port.name = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del port.name
    with pytest.raises(AttributeError):
        port.speed = 1  # type: ignore[attr-defined]
    assert not hasattr(port, "__dict__")


@pytest.mark.parametrize("change", [replace, dataclasses.replace])
def test_another_has_other_values(change: Any) -> None:
    port = Port("a", known={"x": 1})
    other = change(port, name="b")
    assert (other.name, other.known, port.name, other.words) == ("b", {"x": 1}, "a", "b at 100")
    with pytest.raises(TypeError):
        change(port, speed=1)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_a_copy_is_whole(way: Any) -> None:
    port = BondedPort("a", 200.0, [1], {"x": 1}, "b")
    assert as_json(way(port)) == as_json(port)


def test_one_made_of_another_has_its_values_first() -> None:
    assert names_of(BondedPort) == ("name", "rate_gbps", "lanes", "known", "other")
    assert required(BondedPort) == ("name",)
    match BondedPort("a", 1.0, [], {}, "b"):
        case BondedPort(name, rate_gbps, other="b"):
            assert (name, rate_gbps) == ("a", 1.0)
