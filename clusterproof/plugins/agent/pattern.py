"""Regular expressions that are compiled on first use: most are never matched, as most logs are empty."""

from __future__ import annotations

import re
from functools import cached_property

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Pattern:
    """A lazily compiled regular expression."""

    def __init__(self, text: str | bytes, flags: int = 0) -> None:
        self.pattern = text
        self.flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[Any]:
        """The compiled expression. Raises re.error."""
        return re.compile(self.pattern, self.flags)

    @cached_property
    def match(self) -> Callable[..., re.Match[Any] | None]:
        """As in `re.Pattern`. The method itself is cached, because logs call it for every line."""
        return self.compiled.match

    @cached_property
    def search(self) -> Callable[..., re.Match[Any] | None]:
        """As in `re.Pattern`."""
        return self.compiled.search

    @cached_property
    def fullmatch(self) -> Callable[..., re.Match[Any] | None]:
        """As in `re.Pattern`."""
        return self.compiled.fullmatch

    @cached_property
    def findall(self) -> Callable[[str], list[Any]]:
        """As in `re.Pattern`."""
        return self.compiled.findall

    @cached_property
    def sub(self) -> Callable[..., str]:
        """As in `re.Pattern`."""
        return self.compiled.sub
