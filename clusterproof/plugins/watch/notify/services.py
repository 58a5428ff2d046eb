"""Receivers of a watch by URL, sent to by Apprise, or programs. No URL is ever shown."""

from __future__ import annotations

import copy
import logging
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from clusterproof.plugins.core import nodeset
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import ChangeKind
from clusterproof.plugins.watch.notify import REMINDER, Alert, Notification
from clusterproof.plugins.watch.notify.receiver import (
    TIMEOUT_S,
    Delivery,
    NoReceiver,
    Receiver,
    ReceiverProgram,
    after_s,
    arguments_of,
    identity_of,
)

MAX_IDS = 8  # of findings, that a message names
_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9]*://")
_WORDS = {
    ChangeKind.CLOSED.value: "over",
    ChangeKind.WORSE.value: "worse",
    ChangeKind.FLAPPING.value: "flapping",
    REMINDER: "still open",
}
_retry_after: ContextVar[list[float] | None] = ContextVar("asked", default=None)  # seconds, by Retry-After


MAX_TITLE = 100  # characters: a subject of SNS's
MAX_BODY = 1_800  # characters: what chats take in one message
ABSENT = "--notify needs Apprise, which is not installed: pip install apprise"
INCIDENT_KEYS = ("dedup", "alias")  # of PagerDuty and Opsgenie, as Apprise calls them
_TALKATIVE = ("apprise", "urllib3", "requests", "requests_oauthlib")  # their log lines hold tokens
_SCHEME = re.compile(r"([a-z][a-z0-9]{1,20})://")


@dataclass(frozen=True, slots=True)
class ServiceMessage:
    """One message; `kind` is Apprise's type, `incident` the deduplication key of services that have one."""

    title: str
    body: str
    kind: str
    incident: str = ""


def apprise_services(urls: Sequence[str], first: int = 1) -> list[tuple[str, Callable[[ServiceMessage], str]]]:
    """What sends to each URL, beside its scheme, which is all that may be shown of it. Raises NoReceiver."""
    try:
        with silenced():
            import apprise
    except ImportError:
        raise NoReceiver(ABSENT) from None
    # A service that redirects could have this host ask its metadata service, or others get the message.
    asset = apprise.AppriseAsset(
        app_id="clusterproof", app_desc="clusterproof", app_url="", image_url_mask="", http_redirects=False
    )
    senders: list[tuple[str, Callable[[ServiceMessage], str]]] = []
    for number, url in enumerate(urls, start=first):
        with silenced():
            try:
                service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
            except Exception:  # its words may hold the URL
                service = None
        scheme = _SCHEME.match(url)
        if service is None or scheme is None:
            raise NoReceiver(
                f"--notify number {number} is not a URL that Apprise takes (not shown: it may hold a password); "
                "expected scheme://… as Apprise's documentation has it for the service"
            )
        senders.append((scheme[1], partial(_send, service)))
    return senders


def _send(service: Any, message: ServiceMessage) -> str:
    """What went wrong, in words that hold nothing of the URL."""
    for name in INCIDENT_KEYS if message.incident else ():
        if getattr(service, name, "") is None:  # it has one, and the URL names none
            service = copy.copy(service)
            setattr(service, name, message.incident)
    is_sent = service.notify(
        body=message.body,
        title=message.title,
        notify_type=message.kind,
        body_format="text",
        overflow="truncate",  # never a second message
    )
    return "" if is_sent else "the service refused it or did not answer"


@contextmanager
def silenced() -> Iterator[None]:
    """Nothing that these libraries log, or warn of in their own imports, reaches a terminal or a file."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels):  # noqa: B905
            logger.setLevel(level)


def bounded(lines: Sequence[str]) -> str:
    """The lines as one text, whole lines as far as there is room, and how many are missing."""
    kept: list[str] = []
    left = MAX_BODY - 40
    for line in (one_line(line, 400) for line in lines):
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    if len(kept) < len(lines):
        kept.append(f"… and {len(lines) - len(kept)} more lines")
    return "\n".join(kept)


def one_line(text: str, most: int) -> str:
    """A text of so many characters at most, without what could steer a terminal."""
    text = printable(" ".join(text.split()), most * 2)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"


def receiver_of(text: str, number: int) -> Receiver:
    """Who a `--notify` names, by its place among them. Raises NoReceiver."""
    if not _URL.match(text):
        return ReceiverProgram(arguments_of(text))
    ((scheme, send),) = apprise_services([text.strip()], number)
    return Service(scheme, send, identity_of(text.strip()))


class Service:
    """A service that Apprise supports."""

    def __init__(self, scheme: str, send: Callable[[ServiceMessage], str], identity: str) -> None:
        self.name, self.identity = scheme, identity
        self._send = send

    def send(self, notification: Notification) -> Delivery:
        """Send it; one that does not answer in time is left behind."""
        pauses: list[float] = []
        with silenced():
            (why,) = within(
                TIMEOUT_S, [partial(_sent_noting_pauses, pauses, partial(self._send, message_of(notification)))]
            )
        return Delivery(f"{self.name}: {why}" if why else "", max(pauses, default=0.0))

    def cancel(self) -> None:
        """Nothing: what is sent is left behind when the watch ends."""


def message_of(notification: Notification) -> ServiceMessage:
    """As a person reads it; its last lines have the ids by which a receiver knows a repetition."""
    first, devices = notification.alerts[0], notification.devices
    is_closed = first.kind == ChangeKind.CLOSED.value
    label = _WORDS.get(first.kind)
    what = f"{label}: {first.verdict.value}" if label else first.verdict.value.upper()
    lines = [
        f"{notification.nodes}: {first.message} [{first.key.rule}]",
        *([f"devices: {', '.join(devices[:MAX_IDS])}{_more(len(devices))}"] if devices else []),
        *([f"changes: {len(notification.alerts)}, of which this is the first"] if len(notification.alerts) > 1 else []),
        _when(first),
    ]
    ids = f"notification {notification.id}, incident {notification.incident}"
    kind = "success" if is_closed else "failure" if first.verdict is Verdict.FAIL else "warning"
    begin = f"{notification.cluster}: {what} {first.key.rule} on "
    title = one_line(begin + nodeset.within(notification.nodes, MAX_TITLE - len(begin)), MAX_TITLE)
    return ServiceMessage(title, bounded([*lines, ids]), kind, notification.incident)


def _when(alert: Alert) -> str:
    """`since 2026-11-18 11:06:40 UTC`; of what is over also until when."""
    if alert.kind == ChangeKind.HAPPENED.value:
        return f"at {_utc(alert.time_s)}"
    until = f", until {_utc(alert.time_s)}" if alert.kind == ChangeKind.CLOSED.value else ""
    return f"since {_utc(alert.since_s)}{until}"


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _more(count: int) -> str:
    return f" and {count - MAX_IDS} more" if count > MAX_IDS else ""


def _sent_noting_pauses(pauses: list[float], send: Callable[[], str]) -> str:
    """Send, and keep what the service asks for: Apprise reports only whether it was taken."""
    _read_retry_after()
    _retry_after.set(pauses)
    return send()


@cache
def _read_retry_after() -> None:
    """Read each Retry-After of requests, by which Apprise sends; it has no hook for all that it sends."""
    from requests import Session

    send = Session.send

    def noted(session: Session, request: Any, **more: Any) -> Any:
        answer = send(session, request, **more)
        pauses, header = _retry_after.get(), answer.headers.get("Retry-After", "")
        if pauses is not None and header and answer.status_code in (429, 503):
            pauses.append(after_s(header, time.time()))
        return answer

    Session.send = noted  # type: ignore[method-assign, assignment]


def within(seconds: float, work: Sequence[Callable[[], str]]) -> list[str]:
    """What went wrong with each piece of work for a service outside, which may never answer; empty where nothing did.

    All are done side by side, and the run goes on when their time is over.
    Of an exception only its type is reported: its message, and its traceback, may hold a password.
    """
    problems: dict[int, str] = {}

    def do(number: int, piece: Callable[[], str]) -> None:
        try:
            problems[number] = piece()
        except Exception as problem:  # whatever it is, it costs this piece of work and no other
            problems[number] = f"{type(problem).__name__}"

    # Daemons: what hangs is left behind when the process ends.
    threads = [threading.Thread(target=do, args=pair, daemon=True) for pair in enumerate(work)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [problems.get(number, f"no answer within {seconds:g} s") for number in range(len(work))]
