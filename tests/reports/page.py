"""A run's page, parsed."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any


class Page(HTMLParser):
    """A page's elements, and the text that a person reads."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.data: dict[str, Any] = {}
        self.inside = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data: str) -> None:
        if self.inside == "script" and self.elements[-1][1].get("type") == "application/json" and data.strip():
            self.data = json.loads(data)
        elif self.inside not in ("script", "style"):
            self.text += data

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
        self.inside = ""

    def attributes(self, name: str) -> list[str]:
        """An attribute's values, wherever it occurs."""
        return [raw[name] or "" for _, raw in self.elements if name in raw]
