"""Responses of an API server, without one."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

from urllib3 import HTTPResponse


def response(status: int, body: Mapping[str, object] | bytes, headers: Mapping[str, str] | None = None) -> HTTPResponse:
    """A response with this object, or with these bytes; a client reads it as it comes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HTTPResponse(io.BytesIO(content), headers, status=status, preload_content=False)
