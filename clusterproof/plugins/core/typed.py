"""Names of `typing` for type checkers only, which saves a prolog the import.

To programs these names are nothing: `Generic[T]` is a plain class, and `overload` leaves its function as it is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any as Any
    from typing import Generic as Generic
    from typing import Literal as Literal
    from typing import NoReturn as NoReturn
    from typing import Protocol as Protocol
    from typing import TypeAlias as TypeAlias
    from typing import TypeVar as TypeVar
    from typing import overload as overload
else:

    class Generic:
        """A class of any type."""

        def __class_getitem__(cls, _of):
            """The class itself."""
            return cls

    class Protocol:
        """What a type has to have."""

    Any = Literal = NoReturn = TypeAlias = Generic

    def TypeVar(name, *_kinds, **_bound):  # noqa: N802 - as in typing
        """Its name."""
        return name

    def overload(function):
        """The function."""
        return function
