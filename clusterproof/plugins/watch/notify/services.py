"""The receivers of `--notify`: a program, or a service with a URL. URLs are never shown."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from clusterproof.plugins.core import nodeset
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import ALSO, ChangeKind
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

MAX_IDS = 8  # finding ids in a message
MAX_NODES = 200  # characters of a nodeset in a message
_URL = re.compile(r"\s*[A-Za-z][A-Za-z0-9]*://")
_WORDS = {
    ChangeKind.CLOSED.value: "over",
    ChangeKind.WORSE.value: "worse",
    ChangeKind.FLAPPING.value: "flapping",
    REMINDER: "still open",
}
_retry_after: ContextVar[list[float] | None] = ContextVar("asked", default=None)  # seconds, by Retry-After


MAX_TITLE = 100  # characters: the limit of an SNS subject
MAX_ANSWER_BYTES = 1 << 20  # of a service's answer
MAX_BODY = 1_800  # characters: what chat services take in one message
ABSENT = "--notify needs Apprise, which is not installed: pip install apprise"
INCIDENT_KEYS = ("dedup", "alias")  # names in Apprise for PagerDuty and Opsgenie
_TALKATIVE = ("apprise", "urllib3", "requests", "requests_oauthlib")  # their log messages contain tokens
_SCHEME = re.compile(r"([a-z][a-z0-9]{1,20})://")


@dataclass(frozen=True, slots=True)
class ServiceMessage:
    """What is sent; `kind` is Apprise's word for it, `incident` the key for services that group by incident."""

    title: str
    body: str
    kind: str
    incident: str = ""


def apprise_services(urls: Sequence[str], first: int = 1) -> list[tuple[str, Callable[[ServiceMessage], str]]]:
    """The sender for each URL, with its scheme, the only part that may be shown. Raises NoReceiver."""
    try:
        with silenced():
            import apprise
    except ImportError:
        raise NoReceiver(ABSENT) from None
    # A redirect could point this host at its metadata service, or send the message to somebody else.
    asset = apprise.AppriseAsset(
        app_id="clusterproof", app_desc="clusterproof", app_url="", image_url_mask="", http_redirects=False
    )
    senders: list[tuple[str, Callable[[ServiceMessage], str]]] = []
    for number, url in enumerate(urls, start=first):
        with silenced():
            try:
                service = apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
            except Exception:  # its message may contain the URL
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
    """Send; returns the failure in words, without any part of the URL."""
    _read_answers()
    if _retry_after.get() is None:
        _retry_after.set([])
    for name in INCIDENT_KEYS if message.incident else ():
        if getattr(service, name, "") is None:  # it has one, and the URL sets none
            service = copy.copy(service)
            setattr(service, name, message.incident)
    is_sent = service.notify(
        body=message.body,
        title=message.title,
        notify_type=message.kind,
        body_format="text",
        overflow="truncate",  # never split into two messages
    )
    return "" if is_sent else "the service refused it or did not answer"


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Suppress what these libraries log, or warn about when imported."""
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


def bounded(lines: Sequence[str], most: int = MAX_BODY) -> str:
    """Join the lines, whole lines as far as they fit, and say how many are missing."""
    kept: list[str] = []
    left = most - 40
    for line in (one_line(line, 400) for line in lines):
        left -= len(line) + 1
        if left < 0:
            break
        kept.append(line)
    if len(kept) < len(lines):
        kept.append(f"… and {len(lines) - len(kept)} more lines")
    return "\n".join(kept)


def one_line(text: str, most: int) -> str:
    """A text of at most so many characters, with terminal control characters removed."""
    text = printable(" ".join(text.split()), most * 2)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"


def receiver_of(text: str, number: int) -> Receiver:
    """The receiver of a `--notify` and its number. Raises NoReceiver."""
    if not _URL.match(text):
        return ReceiverProgram(arguments_of(text))
    ((scheme, send),) = apprise_services([text.strip()], number)
    return Service(scheme, send, identity_of(text.strip()))


class Service:
    """A service supported by Apprise."""

    def __init__(self, scheme: str, send: Callable[[ServiceMessage], str], identity: str) -> None:
        self.name, self.identity = scheme, identity
        self._send = send

    def send(self, notification: Notification) -> Delivery:
        """Send; a service that does not answer in time is abandoned."""
        pauses: list[float] = []
        with silenced():
            (why,) = within(
                TIMEOUT_S, [partial(_sent_noting_pauses, pauses, partial(self._send, message_of(notification)))]
            )
        return Delivery(f"{self.name}: {why}" if why else "", max(pauses, default=0.0))

    def cancel(self) -> None:
        """Nothing: a pending delivery is abandoned when the watch ends."""


def message_of(notification: Notification) -> ServiceMessage:
    """The message for people; its last lines have the ids by which a receiver detects repetitions."""
    first, devices = notification.alerts[0], notification.devices
    is_closed = first.kind == ChangeKind.CLOSED.value
    label = _WORDS.get(first.kind)
    what = f"{label}: {first.verdict.value}" if label else first.verdict.value.upper()
    found, *others = first.message.split(ALSO)
    lines = [
        f"{nodeset.within(notification.nodes, MAX_NODES)}: {found} [{first.key.rule}]",
        *(f"also {other}" for other in others),
        *([f"devices: {', '.join(devices[:MAX_IDS])}{_more(len(devices))}"] if devices else []),
        *([f"changes: {len(notification.alerts)}, of which this is the first"] if len(notification.alerts) > 1 else []),
        _when(first),
    ]
    ids = f"notification {notification.id}, incident {notification.incident}"
    kind = "success" if is_closed else "failure" if first.verdict is Verdict.FAIL else "warning"
    begin = f"{notification.cluster}: {what} {first.key.rule} on "
    title = one_line(begin + nodeset.within(notification.nodes, MAX_TITLE - len(begin)), MAX_TITLE)
    body = f"{bounded(lines, MAX_BODY - len(ids) - 1)}\n{ids}"
    return ServiceMessage(title, body, kind, notification.incident)


def _when(alert: Alert) -> str:
    """`since 2026-11-18 11:06:40 UTC`; for what is over also until when."""
    if alert.kind == ChangeKind.HAPPENED.value:
        return f"at {_utc(alert.time_s)}"
    until = f", until {_utc(alert.time_s)}" if alert.kind == ChangeKind.CLOSED.value else ""
    return f"since {_utc(alert.since_s)}{until}"


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _more(count: int) -> str:
    return f" and {count - MAX_IDS} more" if count > MAX_IDS else ""


def _sent_noting_pauses(pauses: list[float], send: Callable[[], str]) -> str:
    """Send, and keep the pause that the service requests: Apprise only reports success or failure."""
    _retry_after.set(pauses)
    return send()


@cache
def _read_answers() -> None:
    """Record each Retry-After seen by requests, which Apprise uses, and bound what is read of an answer.

    Apprise offers no hook for all deliveries; and Session.send reads that of a redirection, though it is not followed.
    """
    from requests import RequestException
    from requests.adapters import HTTPAdapter
    from urllib3.exceptions import HTTPError

    send = HTTPAdapter.send

    def noted(adapter: HTTPAdapter, request: Any, *more: Any, **named: Any) -> Any:
        answer, pauses = send(adapter, request, *more, **named), _retry_after.get()
        if pauses is None:
            return answer
        with contextlib.closing(answer.raw) as body:
            try:
                answer.raw = io.BytesIO(body.read(MAX_ANSWER_BYTES, decode_content=True))
            except HTTPError as problem:
                raise RequestException(problem) from None
        header = answer.headers.get("Retry-After", "")
        if header and answer.status_code in (429, 503):
            pauses.append(after_s(header, time.time()))
        return answer

    HTTPAdapter.send = noted  # type: ignore[method-assign, assignment]


def within(seconds: float, work: Sequence[Callable[[], str]]) -> list[str]:
    """Run tasks for external services, which may never answer; returns each one's failure, or empty.

    All run in parallel, and are abandoned at the deadline.
    Only the type of an exception is reported: its message and traceback may contain a password.
    """
    problems: dict[int, str] = {}

    def do(number: int, piece: Callable[[], str]) -> None:
        try:
            problems[number] = piece()
        except Exception as problem:  # a failure affects only this task
            problems[number] = f"{type(problem).__name__}"

    # Daemon threads: those that hang end with the process.
    threads = []
    for number, piece in enumerate(work):
        thread = threading.Thread(target=do, args=(number, piece), daemon=True)
        try:
            thread.start()
        except RuntimeError as problem:  # this machine has no thread left
            problems[number] = str(problem)
        else:
            threads.append(thread)
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [problems.get(number, f"no answer within {seconds:g} s") for number in range(len(work))]
