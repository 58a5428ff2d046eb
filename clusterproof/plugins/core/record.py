"""Records: immutable classes of named values that are cheap to define; a start loads two hundred of them.

To users and to the functions of `dataclasses`, a record is a frozen dataclass with slots. All records share the methods
that `dataclasses` would generate and compile for each class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypeVar

    from typing_extensions import dataclass_transform

    T = TypeVar("T")
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        """Read by type checkers only."""
        return lambda decorator: decorator


NO_DEFAULT = object()


class Default:
    """A default value, created anew for each record; whether it is in the repr, and compared."""

    __slots__ = ("compare", "make", "repr")

    def __init__(self, make: Callable[[], Any], repr: bool, compare: bool) -> None:  # noqa: A002 - as in dataclasses
        self.make = make
        self.repr = repr
        self.compare = compare


def field(*, default_factory: Callable[[], Any], repr: bool = True, compare: bool = True) -> Any:  # noqa: A002
    """Declare a default that is created anew for each record."""
    return Default(default_factory, repr, compare)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """Turn a class into a record; its values are its annotations, those without a default first."""
    inherited = getattr(kind, "__match_args__", ())
    own = tuple(name for name in vars(kind).get("__annotations__", {}) if name not in inherited)
    names = (*inherited, *own)
    members = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    defaults = dict(getattr(kind, "_defaults", {}))
    defaults.update((name, members.pop(name)) for name in names if name in members)
    members |= {"__slots__": own, "__match_args__": names, "_defaults": defaults, "__dataclass_fields__": FIELDS}
    for name, method in METHODS.items():
        members.setdefault(name, method)
    meta: Any = type(kind)
    made: Any = meta(kind.__name__, kind.__bases__, members)
    made.__qualname__ = kind.__qualname__
    made._puts = tuple(getattr(made, name).__set__ for name in names)  # noqa: SLF001
    made._of_named = staticmethod(itemgetter(*names)) if names else None  # noqa: SLF001
    made._compared = _getter(tuple(name for name in names if _is(defaults.get(name), "compare")))  # noqa: SLF001
    return made  # type: ignore[no-any-return]


def replace(data: T, **changes: Any) -> T:
    """A copy of the record with some values replaced."""
    kind: Any = type(data)
    values = {name: getattr(data, name) for name in kind.__match_args__}
    return kind(**{**values, **changes})  # type: ignore[no-any-return]


def names_of(kind: type) -> tuple[str, ...]:
    """The names of a record's values."""
    names: tuple[str, ...] = kind.__match_args__  # type: ignore[attr-defined]
    return names


def is_record(kind: type) -> bool:
    """Whether a class is a record."""
    return hasattr(kind, "_puts")


def required(kind: type) -> tuple[str, ...]:
    """The names of a record's values that have no default."""
    return tuple(name for name in names_of(kind) if name not in kind._defaults)  # type: ignore[attr-defined] # noqa: SLF001


def as_json(value: Any) -> Any:
    """A record as a dictionary, including records in its lists."""
    if isinstance(value, (list, tuple)):
        return [as_json(entry) for entry in value]
    if not is_record(type(value)):
        return value
    return {name: as_json(getattr(value, name)) for name in names_of(type(value))}


def _is(default: object, annotation: str) -> bool:
    """Whether a value with that default is in the repr (`repr`), or compared (`compare`)."""
    return bool(getattr(default, annotation)) if isinstance(default, Default) else True


def _getter(names: tuple[str, ...]) -> Any:
    """A function that returns a record's values as a tuple, without becoming a method."""
    if len(names) > 1:
        return attrgetter(*names)
    get = attrgetter(*names) if names else None
    return staticmethod(lambda data: (get(data),) if get else ())


def _init(self: Any, *values: Any, **named: Any) -> None:
    if named or len(values) != len(self.__match_args__):
        values = _all_values(type(self), values, named)
    for put, value in zip(self._puts, values):  # noqa: B905 - as many
        put(self, value)


def _all_values(kind: Any, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """All values in order, with defaults filled in. Raises TypeError."""
    names: tuple[str, ...] = kind.__match_args__
    if len(values) > len(names):
        raise TypeError(f"{kind.__name__} has {len(names)} values, and {len(values)} were given")
    if len(named) == len(names) > 1:
        try:
            return kind._of_named(named)  # type: ignore[no-any-return] # noqa: SLF001
        except KeyError:
            pass  # an unknown name, reported below
    whole = list(values)
    for name in names[len(values) :]:
        value = named.pop(name, NO_DEFAULT)
        if value is NO_DEFAULT:
            value = kind._defaults.get(name, NO_DEFAULT)  # noqa: SLF001
            if value is NO_DEFAULT:
                raise TypeError(f"{kind.__name__} was not given its {name!r}")
            value = value.make() if isinstance(value, Default) else value
        whole.append(value)
    if named:
        raise TypeError(f"{kind.__name__} has no value {min(named)!r}, or was given it twice")
    return tuple(whole)


def _repr(self: Any) -> str:
    names = (name for name in self.__match_args__ if _is(self._defaults.get(name), "repr"))
    shown = (f"{name}={getattr(self, name)!r}" for name in names)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: Any) -> Any:
    return self._compared(self) == self._compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._compared(self))


def _reduce(self: Any) -> tuple[Any, ...]:
    return type(self), tuple(getattr(self, name) for name in self.__match_args__)


def _set(self: Any, name: str, _value: object) -> NoReturn:
    raise AttributeError(f"{type(self).__name__}.{name} never changes")


def _delete(self: Any, name: str) -> NoReturn:
    raise AttributeError(f"{type(self).__name__}.{name} never changes")


METHODS: Mapping[str, Callable[..., Any]] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__reduce__": _reduce,
    "__setattr__": _set,
    "__delattr__": _delete,
}


class _Fields:
    """Provides the attributes that `dataclasses` functions read, created on first use."""

    def __get__(self, _of: object, kind: Any) -> Any:
        import dataclasses  # importing it costs more than all records of a prolog

        def declared(name: str) -> Any:
            default = kind._defaults.get(name, dataclasses.MISSING)  # noqa: SLF001
            if isinstance(default, Default):
                return dataclasses.field(default_factory=default.make, repr=default.repr, compare=default.compare)
            return dataclasses.field(default=default)

        types = {
            name: data
            for base in reversed(kind.__mro__)
            for name, data in vars(base).get("__annotations__", {}).items()
        }
        spec = [(name, types[name], declared(name)) for name in kind.__match_args__]
        dataclass: Any = dataclasses.make_dataclass(kind.__name__, spec, frozen=True)
        fields = dataclass.__dataclass_fields__
        kind.__dataclass_fields__ = fields
        return fields


FIELDS = _Fields()
