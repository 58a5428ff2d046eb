"""What is asked of a submit host: that it starts a command on nodes."""

from __future__ import annotations

from typing import Any

REQUEST: dict[str, Any] = {
    "name": "clusterproof-cp1",
    "minutes": 2,
    "options": [],
    "mark": "cp1:node:",
    "command": "true",
}
