"""What typing offers, for type checkers only: a prolog runs before each job and avoids its import.

At run time these are empty: `Generic[T]` is a plain class, and `overload` returns its function unchanged.
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
        """Stands for typing.Generic."""

        def __class_getitem__(cls, _of):
            """The class itself."""
            return cls

    class Protocol:
        """Stands for typing.Protocol."""

    Any = Literal = NoReturn = TypeAlias = Generic

    def TypeVar(name, *_kinds, **_bound):  # noqa: N802 - as in typing
        """Returns the name."""
        return name

    def overload(function):
        """Returns the function."""
        return function
