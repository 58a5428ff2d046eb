"""Marks of checks that work without pytest; pytest treats them as its own when it collects the checks."""

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
        """Apply the mark to a function or a class of tests, or set its arguments."""
        if not isinstance(data, (FunctionType, type)):
            return Mark(self.name, (data,))
        marked: Any = data
        own = vars(marked).get("pytestmark", ())  # pytest itself adds those of a class's bases
        marked.pytestmark = [*(own if isinstance(own, (list, tuple)) else [own]), self]
        return marked

    @property
    def mark(self) -> pytest.Mark:
        """The equivalent pytest mark, which pytest reads when it collects."""
        import pytest  # pytest is already imported when it collects

        decorator: pytest.MarkDecorator = getattr(pytest.mark, self.name)
        return decorator.with_args(*self.args).mark if self.args else decorator.mark


class Marks:
    """Every mark by name, like `pytest.mark`; pytest checks that the suite declares it."""

    def __getattr__(self, name: str) -> Mark:
        if name.startswith("_"):
            raise AttributeError(name)
        return Mark(name)


mark = Marks()


def marks_on(marked: object) -> list[Mark | pytest.Mark]:
    """The marks on a function or a module, ours and pytest's, unconverted."""
    marks_of_pytest = getattr(marked, "pytestmark", ())
    return list(marks_of_pytest) if isinstance(marks_of_pytest, (list, tuple)) else [marks_of_pytest]


def marks_of_pytest(marked: object) -> list[pytest.Mark]:
    """The same, all converted to pytest's."""
    return [mark.mark if isinstance(mark, Mark) else getattr(mark, "mark", mark) for mark in marks_on(marked)]
