"""One API server: requests with retries, paged listings, logs and watches; errors are one line in its own words."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlencode

from clusterproof.plugins.kubernetes import TOO_MANY, ahead_s, decoded, error_of, error_of_status, error_text
from clusterproof.plugins.kubernetes import KubernetesDenied as KubernetesDenied
from clusterproof.plugins.kubernetes import KubernetesError as KubernetesError
from clusterproof.plugins.kubernetes import KubernetesRefused as KubernetesRefused

CONNECT_S, READ_S = 10.0, 30.0
RETRY_S = 30.0  # how long to retry a server that says "later"
PAGE = 500
MAX_PAGES = 1000  # of one listing: 500,000 objects
MAX_BYTES = 64 * 1024 * 1024  # of one page
LATER = (TOO_MANY, 500, 502, 503, 504)
REPEATABLE = ("GET", "PATCH")  # safe to repeat: our patches set a state, or apply to one version only
DRAIN_BYTES = 65536
JSON = "application/json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"  # list entries are matched by key: others' stay unchanged
READ_BYTES = 65536
MAX_LINE_BYTES = 4 * 1024 * 1024  # of an event; etcd holds no larger object
EXISTS = "AlreadyExists"  # the reason, also if a request created the object whose answer was lost
TIMEOUT = "Timeout"  # the reason if a request was accepted but not answered in time
ASKED: Counter[str] = Counter()  # requests by this process: `GET 200`; `GET 0` without an answer
_COUNTING = threading.Lock()


class Api:
    """An API server as one user sees it. Thread-safe.

    `send` is urllib3's `PoolManager.request`; `authorization` returns the header for each request.
    """

    def __init__(self, url: str, send: Callable[..., Any], authorization: Callable[[], str] = str) -> None:
        self.url = url.rstrip("/")
        self._send = send
        self._authorization = authorization
        self._has_answered = False
        self._ahead_s = 0.0  # its clock, of this machine's
        self._lock = threading.Lock()  # exec plugins must run one at a time

    def now(self) -> float:
        """The time by its clock, which dates what it holds; in seconds since 1970."""
        return time.time() + self._ahead_s

    def get(self, path: str, **query: object) -> Mapping[str, Any]:
        """One object, or one page. Raises KubernetesError."""
        return decoded(self._request("GET", path, query, None, RETRY_S))

    def get_once(self, path: str, within_s: float, **query: object) -> Mapping[str, Any]:
        """One object, without retries; the caller retries. Raises KubernetesError, also after so long."""
        return decoded(self._request("GET", path, query, None, 0.0, within_s=within_s))

    def create(self, path: str, body: object) -> Mapping[str, Any]:
        """Create an object; returns the result. Raises KubernetesError."""
        return decoded(self._request("POST", path, {}, body, RETRY_S))

    def patch(self, path: str, body: object, kind: str, **query: object) -> Mapping[str, Any]:
        """Apply a patch of this type; returns the result. Raises KubernetesError (409: it was changed)."""
        return decoded(self._request("PATCH", path, query, body, RETRY_S, kind=kind))

    def patch_unread(self, path: str, body: object, kind: str) -> None:
        """The same, without reading the result. Raises KubernetesError."""
        self._request("PATCH", path, {}, body, RETRY_S, kind=kind)

    def delete(self, path: str, **query: object) -> None:
        """Delete an object, or a collection. Raises KubernetesError."""
        self._request("DELETE", path, query, None, RETRY_S)

    def listed(self, path: str, **query: object) -> Iterator[Mapping[str, Any]]:
        """The objects of all pages. Raises KubernetesError, also halfway."""
        for items in (page.get("items") for page in self.pages(path, query)):
            yield from (item for item in items if isinstance(item, dict)) if isinstance(items, list) else ()

    def pages(
        self, path: str, query: Mapping[str, object], read: Callable[[bytes], Mapping[str, Any]] = decoded
    ) -> Iterator[Mapping[str, Any]]:
        """The pages of a listing, each body parsed by `read`. Raises KubernetesError, also halfway."""
        after = ""
        limit = most = int(str(query.get("limit", PAGE)))
        for _ in range(MAX_PAGES):
            query = {**query, "limit": limit} | ({"continue": after} if after else {})
            content = self._request("GET", path, query, None, RETRY_S, MAX_BYTES)
            if len(content) >= MAX_BYTES and limit > 1:  # users make pods as large as etcd holds
                limit //= 2
                continue
            page, limit = read(content), min(2 * limit, most)
            yield page
            after = str((page.get("metadata") or {}).get("continue") or "")
            if not after:
                return
        raise KubernetesError(f"{path} has more than {MAX_PAGES} pages of objects; expected fewer")

    def text(
        self,
        path: str,
        most_bytes: int,
        retry_s: float = RETRY_S,
        within_s: float = READ_S + CONNECT_S,
        **query: object,
    ) -> bytes:
        """A raw body, at most so many bytes. Raises KubernetesError, also if nothing arrives for so long."""
        return self._request("GET", path, query, None, retry_s, most_bytes, within_s=within_s)

    def watch(self, path: str, timeout_s: float, **query: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The events of a watch (`ADDED`, …, with the object) until the server ends it. Raises KubernetesError.

        An event `ERROR`, as for a resource version that is too old (410), is raised too.
        """
        query = {**query, "watch": "true", "timeoutSeconds": max(1, int(timeout_s))}
        with self.stream(path, timeout_s, **query) as stream:
            for line in stream.lines():
                event = decoded(line)
                kind, resource = str(event.get("type")), event.get("object") or {}
                if kind == "ERROR":
                    raise error_of_status(int(resource.get("code") or 0), resource, path)
                yield kind, resource

    @contextmanager
    def stream(self, path: str, quiet_s: float, **query: object) -> Iterator[Stream]:
        """A stream of `path` that is open during the block, or until nothing has arrived for so long.

        Raises KubernetesError.
        """
        response = self._response("GET", path, query, None, quiet_s + CONNECT_S)
        try:
            if response.status >= 300:
                raise error_of(response, self._content(response, DRAIN_BYTES), path)
            yield Stream(response)
        finally:
            response.close()

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        body: object,
        retry_s: float,
        most_bytes: int = MAX_BYTES,
        kind: str = JSON,
        within_s: float = READ_S + CONNECT_S,
    ) -> bytes:
        """The body of a successful response; retries if the server says "later". Raises KubernetesError."""
        until = time.monotonic() + retry_s
        attempt = 0
        while True:
            try:
                response = self._response(method, path, query, body, within_s, kind)
                content = self._content(response, most_bytes)
            except KubernetesError:
                attempt += 1
                if not self._has_answered or time.monotonic() + 2**attempt > until:
                    raise
                time.sleep(2**attempt)  # an API server that is restarting
                continue
            if response.status < 300:
                return content
            wait_s = _wait_s(response, attempt)
            problem = error_of(response, content, path)
            if not _may_pass(method, body, problem) or time.monotonic() + wait_s > until:
                raise problem
            time.sleep(wait_s)
            attempt += 1

    def _content(self, response: Any, most_bytes: int) -> bytes:
        """The body of a response, short for an error. Raises KubernetesError if it breaks off."""
        try:
            return _read(response, most_bytes if response.status < 300 else DRAIN_BYTES)
        except Exception as broken:  # urllib3's
            raise KubernetesError(
                f"{self.url}: the answer broke off: {error_text(broken)}", reason=_reason(broken)
            ) from None
        finally:
            response.release_conn()

    def _response(
        self, method: str, path: str, query: Mapping[str, object], body: object, within_s: float, kind: str = JSON
    ) -> Any:
        """Raises KubernetesError if there is no answer."""
        with self._lock:
            authorization = self._authorization()
        headers = {"Accept": "application/json, */*", "User-Agent": "clusterproof"}
        if authorization:
            headers["Authorization"] = authorization
        if body is not None:
            headers["Content-Type"] = kind
        address = f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            response = self._send(
                method,
                address,
                body=None if body is None else json.dumps(body, separators=(",", ":")),
                headers=headers,
                preload_content=False,
                retries=False,
                timeout=_timeout(within_s),
            )
            self._has_answered = True
            self._ahead_s = ahead_s(response)
            _count(method, response.status)
        except Exception as problem:  # urllib3's, ssl's, the system's
            _count(method, 0)
            raise KubernetesError(
                f"no answer from {self.url}: {error_text(problem)}; expected an API server that this machine reaches",
                reason=_reason(problem),
            ) from None
        return response


def _may_pass(method: str, body: object, problem: KubernetesError) -> bool:
    """Whether to repeat a request, which the server may have carried out: of one name it creates one object."""
    if problem.status == TOO_MANY:
        return True
    is_named = isinstance(body, Mapping) and "name" in (body.get("metadata") or {})
    is_creation = method == "POST" and is_named and not isinstance(problem, KubernetesRefused)
    return problem.status in LATER and (method in REPEATABLE or is_creation)


def _reason(problem: Exception) -> str:
    from urllib3.exceptions import ReadTimeoutError

    return TIMEOUT if isinstance(problem, ReadTimeoutError) else ""


def _count(method: str, status: int) -> None:
    with _COUNTING:
        ASKED[f"{method} {status}"] += 1


def _timeout(within_s: float) -> Any:
    from urllib3.util import Timeout

    return Timeout(connect=min(CONNECT_S, within_s), read=within_s)


def _read(response: Any, most_bytes: int) -> bytes:
    content = bytearray()
    for chunk in response.stream(DRAIN_BYTES):
        content += chunk
        if len(content) > most_bytes:
            response.close()
            return bytes(content[:most_bytes])
    return bytes(content)


def _wait_s(response: Any, attempt: int) -> float:
    try:
        return min(float(response.headers.get("Retry-After") or 0) or 0.5 * 2**attempt, RETRY_S)
    except ValueError:
        return 1.0


class Stream:
    """A streamed response. `close` may be called from any thread, and wakes the reader."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._is_closed = False

    def pieces(self) -> Iterator[bytes]:
        """The data until the server ends it or it is closed. Raises KubernetesError if the connection breaks."""
        try:
            while not self._is_closed and (piece := self._response.read1(READ_BYTES)):
                yield piece
        except Exception as problem:  # urllib3's, if the connection breaks
            if not self._is_closed:
                raise KubernetesError(f"broke off: {error_text(problem)}") from None

    def lines(self) -> Iterator[bytes]:
        """The same by lines. Raises KubernetesError, also for an endless line."""
        rest = b""
        for piece in self.pieces():
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                raise KubernetesError(f"a line is larger than {MAX_LINE_BYTES} bytes")
            yield from (line for line in whole if line.strip())

    def close(self) -> None:
        """End the stream."""
        self._is_closed = True
        with suppress(Exception):  # it has ended already, or urllib3 is older than 2.3 and does not support it
            self._response.shutdown()
