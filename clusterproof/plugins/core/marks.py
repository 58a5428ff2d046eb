"""Marks of checks that need no import of pytest, which accepts them as its own at collection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType

from clusterproof.plugins.core.typed import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    import pytest

F = TypeVar("F", bound=Callable[..., Any])
NOTHING: Mapping[str, Any] = {}


class Mark:
    """One mark: its name and arguments, as in `mark.prolog`, `mark.hyperpod_node_debugger("G")`."""

    __slots__ = ("args", "name")
    kwargs = NOTHING

    def __init__(self, name: str, args: tuple[str, ...] = ()) -> None:
        self.name = name
        self.args = args

    @overload
    def __call__(self, data: F) -> F: ...
    @overload
    def __call__(self, data: str) -> Mark: ...
    def __call__(self, data: Any) -> Any:
        """Put the mark on a function, or say what stands in its brackets."""
        if not isinstance(data, FunctionType):
            return Mark(self.name, (data,))
        data.__dict__["pytestmark"] = [*getattr(data, "pytestmark", ()), self]
        return data

    @property
    def mark(self) -> pytest.Mark:
        """Pytest's own: where it finds marks, it asks each for this."""
        import pytest  # what collects has it already

        decorator: pytest.MarkDecorator = getattr(pytest.mark, self.name)
        return decorator.with_args(*self.args).mark if self.args else decorator.mark


class Marks:
    """Makes a mark of any name, as `pytest.mark` does; pytest reports unknown ones."""

    def __getattr__(self, name: str) -> Mark:
        if name.startswith("_"):
            raise AttributeError(name)
        return Mark(name)


mark = Marks()


def marks_on(marked: object) -> list[Mark | pytest.Mark]:
    """The marks on a function or a module, ours and those of pytest, as each was put there."""
    marks_of_pytest = getattr(marked, "pytestmark", ())
    return list(marks_of_pytest) if isinstance(marks_of_pytest, (list, tuple)) else [marks_of_pytest]


def marks_of_pytest(marked: object) -> list[pytest.Mark]:
    """The same, all as pytest's own."""
    return [mark.mark if isinstance(mark, Mark) else getattr(mark, "mark", mark) for mark in marks_on(marked)]
