"""Typed fields of a reported JSON object: one descriptor for each value, decoded when it is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Any, Generic, Protocol, TypeAlias, TypeVar, overload
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, part

T = TypeVar("T")
Thing = TypeVar("Thing")
Otherwise = TypeVar("Otherwise")
Decode: TypeAlias = Callable[[object], T]

MAX_TEXT = 2_000  # characters of a value; healthy nodes report far shorter ones
TOO_LARGE = 10**24  # for any count, size or time
_SPACE = Pattern(r"\s")
MAX_OUTPUT = 300_000  # characters of a tool's output; the probe sends at most 256 KiB
NEVER_READ = "never_read"  # the key for why everything else is unknown about a device that the collector did not reach
UNCAPTURED = "UNCOLLECTED"  # the error for what no captured file contains
UNSUPPORTED = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "DEPRECATED"})


class Device(Protocol):
    """Any object with the JSON object that was reported of it."""

    @property
    def data(self) -> Mapping[str, Any]:
        """The object as reported."""


@record
class Reported:
    """A JSON object that a node or service reported; its values are Fields, decoded when they are read."""

    data: Mapping[str, Any]


class Field(Generic[T]):
    """One value of a device. Reading it raises Incomplete or NotApplicable if the node could not report it."""

    def __init__(self, decode: Callable[[object], T], key: str = "", where: str = "") -> None:
        self.decode = decode
        self.key = key
        self.where = where  # its name in messages; else its key

    def __set_name__(self, owner: type, name: str) -> None:
        self.key = self.key or name
        self.where = self.where or self.key

    @overload
    def __get__(self, device: None, owner: type) -> Field[T]: ...
    @overload
    def __get__(self, device: Device, owner: type) -> T: ...
    def __get__(self, device: Device | None, owner: type) -> Field[T] | T:
        if device is None:
            return self
        data = device.data.get(self.key)
        if data is None:
            require_read(device.data, self.where)
        try:
            return self.decode(data)
        except Exception:  # `read` has a message for it
            return read(data, self.decode, self.where)


def known(fact: Callable[[], T], otherwise: Otherwise) -> T | Otherwise:
    """An optional fact of a check: if it is unreadable, that part is incomplete, and a default is used."""
    with part:
        return fact()
    return otherwise


def each(things: Iterable[Thing], fact: Callable[[Thing], T]) -> Iterator[T]:
    """The fact for each item for which it is readable; others make that part of the check incomplete."""
    for thing in things:
        with part:
            yield fact(thing)


def readings(device: object, *names: str) -> tuple[dict[str, Any], list[Incomplete | NotApplicable]]:
    """A device's readable values, and why the others are not.

    For a check of several values: a fault in one takes precedence over another that is unreadable.
    """
    reported: dict[str, Any] = {}
    unread: list[Incomplete | NotApplicable] = []
    for name in names:
        try:
            reported[name] = getattr(device, name)
        except (Incomplete, NotApplicable) as why:
            unread.append(why)
    return reported, unread


def reading_of(device: object, name: str, otherwise: Any = None) -> Any:
    """A value such as `name` or `boot.hostname`, or the default if it is unknown, which `known` would report."""
    try:
        return attrgetter(name)(device)
    except (Incomplete, NotApplicable):
        return otherwise


def require(unread: Iterable[Incomplete | NotApplicable]) -> None:
    """Raise the first Incomplete of `readings`, else the first NotApplicable, if any."""
    for why in sorted(unread, key=lambda why: isinstance(why, NotApplicable)):
        raise why


class Unreadable(Incomplete):
    """The node tried to read the value and got an error."""


def require_read(data: Mapping[str, Any], what: str) -> None:
    """Raise Incomplete where what lacks in these values was never read, and say why."""
    if why := data.get(NEVER_READ):
        cause = "devices that failed, and those behind one that hung, were not read"
        raise Incomplete(f"{what} was not read ({str(why)[:300]})", cause=cause)


def value_of(data: Mapping[str, Any], key: str, decode: Decode[T], where: str = "") -> T:
    """Decode one of these values, which messages call `where` or by its key. Raises Incomplete, NotApplicable."""
    value = data.get(key)
    if value is None:
        require_read(data, where or key)
    return read(value, decode, where or key)


def read(data: object, decode: Callable[[object], T], where: str) -> T:
    """Decode a value that may be an error object. Raises Incomplete, NotApplicable."""
    try:
        return decode(data)
    except (Incomplete, NotApplicable):
        raise
    except Exception:  # noqa: S110 - whatever is wrong with it, it is not understood
        pass
    if isinstance(data, dict) and isinstance(data.get("error"), str):
        word = data["error"][:40]
        if word == UNCAPTURED:
            raise Incomplete(f"{where} is not in what was captured", cause="not in what was captured")
        if word in UNSUPPORTED:
            raise NotApplicable(f"{where} is not supported here ({word})")
        raise Unreadable(f"{where} could not be read ({word})", cause=f"could not be read: {word}")
    if data is None:
        raise Incomplete(f"{where} was not reported", cause="not reported by the node")
    raise Incomplete(f"{where} is not understood: {str(data)[:60]!r}", cause="not understood")


def integer(data: object) -> int:
    """A whole number of at most 24 digits, but no boolean. Raises TypeError."""
    if type(data) is not int or not -TOO_LARGE < data < TOO_LARGE:
        raise TypeError
    return data


def number(data: object) -> float:
    """A finite number. Raises TypeError."""
    if isinstance(data, bool) or not isinstance(data, (int, float)) or not abs(data) < TOO_LARGE:
        raise TypeError
    return float(data)


def boolean(data: object) -> bool:
    """True or false. Raises TypeError."""
    if not isinstance(data, bool):
        raise TypeError
    return data


def text(data: object) -> str:
    """Text, cut at MAX_TEXT characters. Raises TypeError."""
    if not isinstance(data, str):
        raise TypeError
    return data[:MAX_TEXT]


def word(data: object) -> str:
    """The name that a process has given itself, as one word, so that it cannot imitate a sentence."""
    return _SPACE.sub("_", text(data))


def output(data: object) -> str:
    """A tool's complete output: at most MAX_OUTPUT characters. Raises TypeError, ValueError."""
    if not isinstance(data, str):
        raise TypeError
    if len(data) > MAX_OUTPUT:
        raise ValueError
    return data


def optional(decode: Callable[[object], T]) -> Callable[[object], T | None]:
    """The result of `decode`, or None if the node reported null."""

    def decode_optional(data: object) -> T | None:
        return None if data is None else decode(data)

    return decode_optional


def objects(data: object) -> list[dict[str, Any]]:
    """A list of JSON objects. Raises TypeError."""
    if not isinstance(data, list) or not {*map(type, data)} <= {dict}:
        raise TypeError
    return data


def object_as(kind: Callable[[dict[str, Any]], T]) -> Callable[[object], T]:
    """A decoder of a record that is a JSON object."""
    return lambda data: kind(table(data))


def objects_as(kind: Callable[[dict[str, Any]], T]) -> Callable[[object], tuple[T, ...]]:
    """A decoder of records that are a list of JSON objects."""
    return lambda data: tuple(kind(entry) for entry in objects(data))


def at_least_one(entries: list[T], what: str) -> list[T]:
    """A list that cannot be empty if everything was reported. Raises Incomplete."""
    if not entries:
        raise Incomplete(f"no {what} was reported; expected at least one", cause=f"no {what} was reported")
    return entries


def table(data: object) -> dict[str, Any]:
    """A JSON object that is not an error. Raises TypeError."""
    if not isinstance(data, dict) or "error" in data:
        raise TypeError
    return data


def values(data: object) -> list[object]:
    """A list of anything; entries are decoded individually. Raises TypeError."""
    if not isinstance(data, list):
        raise TypeError
    return data


def texts(data: object) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(text(entry) for entry in values(data))
