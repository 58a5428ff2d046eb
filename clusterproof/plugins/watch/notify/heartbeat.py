"""`--heartbeat URL`: signals a dead man's switch that the watch is running; it alerts when signals stop."""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit

from clusterproof.plugins.core import __version__
from clusterproof.plugins.core.errors import ClusterproofError
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.watch.notify.notifier import pause_s
from clusterproof.plugins.watch.notify.receiver import after_s
from clusterproof.plugins.watch.notify.services import within
from clusterproof.plugins.watch.own_health import WHY, Outage

MIN_S = 60.0  # between accepted heartbeats: switches count in minutes, and reject frequent callers
MAX_S = 300.0  # maximum pause that a switch may request: the grace time recommended in docs/watch.md
TIMEOUT_S = 10.0
END_S = 1.0  # for a heartbeat in progress when the watch ends
RETRY_STATUSES = (429, 503)  # responses that may contain Retry-After
MAX_WORDS = 100
_URL = re.compile(r"https?://[!-~]+")


class NoHeartbeat(ClusterproofError, ValueError):  # noqa: N818 - an outcome of the command line
    """An invalid heartbeat URL; the message says why."""


class Heartbeat:
    """A thread that sends a heartbeat after each completed tick, until it is closed."""

    def __init__(self, url: str, say: Callable[[str], object]) -> None:
        """Raises NoHeartbeat."""
        self._url = accepted(url)
        self.outage = Outage(
            say,
            f"the heartbeat was not taken: {WHY}; it is sent again until it is, and watching goes on",
            "the heartbeat is taken again",
        )
        self._has_ticked, self._is_over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch-heartbeat", daemon=True)
        self._thread.start()

    def ticked(self) -> None:
        """A tick was completed."""
        self._has_ticked.set()

    def close(self) -> None:
        """Stop sending."""
        self._is_over.set()
        self._has_ticked.set()
        self._thread.join(END_S)

    def _run(self) -> None:
        failures = 0  # consecutive
        while self._is_next_tick():
            pauses: list[float] = []
            (why,) = within(TIMEOUT_S, [partial(send, self._url, pauses)])
            failures = failures + 1 if why else 0
            if why:
                self.outage.failed(why)
            else:
                self.outage.worked()
            self._is_over.wait(pause_s(failures, max(pauses, default=0.0)) if why else MIN_S)

    def _is_next_tick(self) -> bool:
        """Wait until another tick is completed: after an earlier one the watch may have hung. False: closed."""
        self._has_ticked.clear()
        if not self._is_over.is_set():
            self._has_ticked.wait()
        return not self._is_over.is_set()


def accepted(url: str) -> str:
    """Validate the URL of `--heartbeat`. Raises NoHeartbeat without quoting it: the URL is a secret."""
    try:
        parts = urlsplit(url.strip())
        is_valid = bool(_URL.fullmatch(url.strip()) and parts.hostname and parts.port != 0 and not parts.username)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise NoHeartbeat(
            "--heartbeat is not a URL that can be asked (not shown: it may hold a password); "
            "expected https://HOST/… or http://HOST/… without a user's name"
        )
    return url.strip()


def send(url: str, pauses: list[float]) -> str:
    """Request the URL once, without following redirects; returns the failure, without any part of the URL.

    A pause that the switch requests with 429 or 503 (Retry-After) is added to `pauses`, in seconds.
    """
    request = urllib.request.Request(url, headers={"User-Agent": f"clusterproof/{__version__}"})  # noqa: S310 - accepted
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S):
            return ""
    except HTTPError as refused:
        refused.close()
        if refused.code in RETRY_STATUSES:
            pauses.append(min(MAX_S, after_s(refused.headers.get("Retry-After", ""), time.time())))
        return f"HTTP {refused.code}; expected 2xx"
    except URLError as problem:
        return _error_text(problem.reason)
    except (OSError, HTTPException) as problem:
        return _error_text(problem)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as a final response: it could point this host at its metadata service."""

    def redirect_request(self, *_: object) -> None:
        """Do not follow it."""


def _error_text(problem: object) -> str:
    kind = type(problem).__name__
    reason = getattr(problem, "verify_message", "") or getattr(problem, "strerror", "") or ""
    return printable(f"{kind}: {reason}" if reason else kind, MAX_WORDS)
