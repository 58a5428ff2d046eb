"""Parses `mlnx_qos -i`, `dcb pfc show` and `dcb app show`: PFC and trust of the interface that the command names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from clusterproof.plugins.evidence.field import UNCAPTURED
from clusterproof.plugins.evidence.network.collect_roce import DSCPS, PRIORITIES
from clusterproof.plugins.evidence.parsing import CaptureError, Form, typed_above

_ELSEWHERE = {"error": UNCAPTURED, "text": "in another output"}
_INTERFACE = r"([\w.@-]{1,15})(?![\w.@-])"


def _port(interfaces: list[str], expected: str, pfc: object, dscp: object) -> Mapping[str, object]:
    """One port of the collector `roce`, named after its interface. Raises CaptureError."""
    if len(interfaces) != 1:
        raise CaptureError(f"it does not say of which interface; expected its command above it, with one {expected}")
    return {"roce": {"ports": [{"name": interfaces[0], "device": interfaces[0], "pfc": pfc, "dscp": dscp}]}}


def _digits(switches: list[str]) -> str:
    """Whether PFC is on, one digit for each priority. Raises CaptureError."""
    if not switches:
        raise CaptureError("it has no line on PFC; expected 8 priorities")
    return "".join(switches)


def _by_dscp(pairs: Iterable[tuple[int, str]]) -> str:
    """The priority of each DSCP, one character each."""
    priorities = dict(pairs)
    return "".join(priorities.get(dscp, "-") for dscp in DSCPS)


def _not_understood(word: str) -> dict[str, str]:
    return {"error": "NOT_UNDERSTOOD", "text": word}


# mlnx_qos

_OPTION = re.compile(rf"\bmlnx_qos (?:[^;&|]{{0,80}}? )?(?:-i|--interface)[ =]?{_INTERFACE}")
_ENABLED = re.compile(r"^[ \t]{1,12}enabled((?:[ \t]{1,8}[01]){8})[ \t]*$", re.MULTILINE)
_TRUST = re.compile(r"^Priority trust state: (\w{1,20})[ \t]*$", re.MULTILINE)
_MAPPED = re.compile(r"^[ \t]{1,12}prio:([0-7]) dscp:((?:\d{1,2},){1,64})[ \t]*$", re.MULTILINE)


def is_mlnx_qos(text: str) -> bool:
    """Whether this is the output of mlnx_qos."""
    return bool(_TRUST.search(text))


def read_mlnx_qos(text: str) -> Mapping[str, object]:
    """The priorities of the interface. Raises CaptureError."""
    trust = _TRUST.findall(text)[0]
    pairs = [(int(dscp), row[0]) for row in _MAPPED.findall(text) for dscp in row[1].split(",") if dscp]
    trusts_dscp = trust == "dscp" and pairs
    dscp = _by_dscp(pairs) if trusts_dscp else "" if trust == "pcp" else _not_understood(f"trust {trust}")
    row = _ENABLED.search(text)
    return _port(_OPTION.findall(typed_above(text)), "-i eth1", _digits(row[1].split() if row else []), dscp)


# dcb, of iproute2

_DEV = rf"[ \t]{{1,4}}show[ \t]{{1,4}}dev[ \t]{{1,4}}{_INTERFACE}"
_PFC_OF, _APP_OF = (re.compile(rf"\bdcb (?:-\w{{1,20}} ){{0,4}}{shown}{_DEV}") for shown in ("pfc", "app"))
_PFC = re.compile(r"\bprio-pfc ")
_PFC_ROW = re.compile(r"\bprio-pfc" + "".join(rf" {priority}:(on|off)" for priority in PRIORITIES) + r"\b(?! \d)")
_APP = re.compile(r"^(?:default|ethtype|stream-port|dgram-port|port|dscp|pcp)-prio ", re.MULTILINE)
_DSCP = re.compile(r"^dscp-prio((?: [\w-]{1,20}:[0-7]){1,512})[ \t]*$", re.MULTILINE)
_NAMES = {"default": 0, "BE": 0, "LE": 1, "VA": 44, "EF": 46, **{f"CS{number}": 8 * number for number in range(8)}}
_NAMES |= {f"AF{number}{drop}": 8 * number + 2 * drop for number in range(1, 5) for drop in range(1, 4)}  # RFC 2597
_NAMES |= {str(dscp): dscp for dscp in DSCPS}


def is_dcb_pfc(text: str) -> bool:
    """Whether the text is the output of `dcb pfc show`."""
    return bool(_PFC.search(text))


def read_dcb_pfc(text: str) -> Mapping[str, object]:
    """The PFC settings of the interface. Raises CaptureError."""
    row = _PFC_ROW.search(text)
    switches = ["1" if word == "on" else "0" for word in row.groups()] if row else []
    return _port(_PFC_OF.findall(typed_above(text)), "dev eth1", _digits(switches), _ELSEWHERE)


def is_dcb_app(text: str) -> bool:
    """Whether the text is the output of `dcb app show`."""
    return bool(_APP.search(text))


def read_dcb_app(text: str) -> Mapping[str, object]:
    """The priority of each DSCP at the interface; that there are none is only known if all entries were asked for."""
    typed, row = typed_above(text), _DSCP.search(text)
    pairs = [word.split(":") for word in row[1].split()] if row else []
    unknown = [name for name, _ in pairs if name not in _NAMES]
    dscp: object = _by_dscp((_NAMES[name], priority) for name, priority in pairs if not unknown) if pairs else ""
    if unknown or (not row and "dscp-prio" in text):
        dscp = _not_understood(unknown[0] if unknown else "dscp-prio")
    elif not row and "-prio" in typed:
        dscp = _ELSEWHERE
    return _port(_APP_OF.findall(typed), "dev eth1", _ELSEWHERE, dscp)


FORMS = (
    Form("mlnx_qos", is_mlnx_qos, read_mlnx_qos),
    Form("dcb pfc show", is_dcb_pfc, read_dcb_pfc, 40),
    Form("dcb app show", is_dcb_app, read_dcb_app, 40),
)
