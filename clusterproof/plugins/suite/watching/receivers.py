"""Who a watch notifies: a program, or a service by its URL, as a run does. No URL is ever shown."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, partial
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.forms.notify import MAX_TITLE, Message, bounded, one_line, quiet, services
from clusterproof.plugins.watch.alert import REMINDER, Notification
from clusterproof.plugins.watch.receiver import TIMEOUT_S, NoReceiver, Outcome, Program, Receiver, after_s, words_of
from clusterproof.plugins.watch.states import Kind
from clusterproof.reports.deadline import within

MAX_IDS = 8  # of findings, that a message names
_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9]*://")
_WORDS = {Kind.CLOSED.value: "over", Kind.WORSE.value: "worse", Kind.FLAPPING.value: "flapping", REMINDER: "still open"}
_asked: ContextVar[list[float] | None] = ContextVar("asked", default=None)  # seconds, by Retry-After


def receiver_of(text: str, number: int) -> Receiver:
    """Who a `--notify` names, by its place among them. Raises NoReceiver."""
    if not _URL.match(text):
        return Program(words_of(text))
    try:
        ((scheme, send),) = services([text.strip()], number)
    except pytest.UsageError as wrong:
        raise NoReceiver(str(wrong)) from None
    return Service(scheme, send)


class Service:
    """One that Apprise knows."""

    def __init__(self, scheme: str, send: Callable[[Message], str]) -> None:
        self.name = scheme
        self._send = send

    def send(self, one: Notification) -> Outcome:
        """Send it; one that does not answer in time is left behind."""
        asked: list[float] = []
        with quiet():
            (why,) = within(TIMEOUT_S, [partial(_listening, asked, partial(self._send, message_of(one)))])
        return Outcome(f"{self.name}: {why}" if why else "", max(asked, default=0.0))

    def cancel(self) -> None:
        """Nothing: what is sent is left behind when the watch ends."""


def message_of(one: Notification) -> Message:
    """As a person reads it; its last lines have the ids by which a receiver knows a repetition."""
    first, devices = one.alerts[0], one.devices
    is_closed = first.kind == Kind.CLOSED.value
    words = _WORDS.get(first.kind)
    what = f"{words}: {first.verdict.value}" if words else first.verdict.value.upper()
    lines = [
        f"{one.nodes}: {first.message} [{first.key.rule}]",
        *([f"devices: {', '.join(devices[:MAX_IDS])}{_more(len(devices))}"] if devices else []),
        *([f"changes: {len(one.alerts)}, of which this is the first"] if len(one.alerts) > 1 else []),
        time.strftime("since %Y-%m-%d %H:%M:%S UTC", time.gmtime(first.time_s)),
    ]
    ids = f"notification {one.id}, incident {one.incident}"
    kind = "success" if is_closed else "failure" if first.verdict is Verdict.FAIL else "warning"
    title = one_line(f"{one.cluster}: {what} {first.key.rule} on {one.nodes}", MAX_TITLE)
    return Message(title, bounded([*lines, ids]), kind, one.incident)


def _more(count: int) -> str:
    return f" and {count - MAX_IDS} more" if count > MAX_IDS else ""


def _listening(asked: list[float], send: Callable[[], str]) -> str:
    """Send, and keep what the service asks for: Apprise reports only whether it was taken."""
    _hear_answers()
    _asked.set(asked)
    return send()


@cache
def _hear_answers() -> None:
    """Read each Retry-After of requests, by which Apprise sends; it has no hook for all that it sends."""
    from requests import Session

    send = Session.send

    def heard(session: Session, request: Any, **more: Any) -> Any:
        answer = send(session, request, **more)
        asked, words = _asked.get(), answer.headers.get("Retry-After", "")
        if asked is not None and words and answer.status_code in (429, 503):
            asked.append(after_s(words, time.time()))
        return answer

    Session.send = heard  # type: ignore[method-assign, assignment]
