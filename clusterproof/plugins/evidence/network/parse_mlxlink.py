"""The link of one port by mlxlink, which does not say of which device it is: its command does."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clusterproof.plugins.evidence.network.parse_rdma import PHYSICAL, STATES, as_in_sysfs, named
from clusterproof.plugins.evidence.parsing import CaptureError, Form, typed_above

_ROW = re.compile(r"^(State|Physical state) {1,40}: (\S.{0,60}?)[ \t]*$", re.MULTILINE)
_DEVICE = re.compile(r"\s(?:-d|--device)[ =]?(mlx5_\d{1,4})(?!\w)")
_PORT = re.compile(r"\s(?:-p|--port)[ =]?(\d{1,3})\b")
_UP, _OFF = "Active", "Disable"  # mlxlink's words; any other is a link that is not up
_LINKS = frozenset({"linkup", "polling", "disabled", "sleep"})  # physical states that sysfs has too


def is_mlxlink(text: str) -> bool:
    """Whether it is mlxlink's."""
    return "Operational Info" in text and bool(_ROW.search(text))


def read_mlxlink(text: str) -> Mapping[str, object]:
    """The port of the collector `rdma`, without its rate. Raises CaptureError."""
    typed, rows = typed_above(text), dict(_ROW.findall(text))
    device, port = _DEVICE.search(typed), _PORT.search(typed)
    if not device:
        raise CaptureError("mlxlink does not say of which device; expected its command above it, with -d mlx5_0")
    state, physical = rows.get("State", ""), rows.get("Physical state", "")
    row: dict[str, object] = {"port": int(port[1]) if port else 1}
    if state:
        row["state"] = as_in_sysfs(STATES, "active" if state == _UP else "down")
    if physical.lower() in _LINKS or state == _OFF:
        row["physical_state"] = as_in_sysfs(PHYSICAL, "disabled" if state == _OFF else physical)
    return {"rdma": {"devices": [{**named(device[1]), "alone": True, "ports": [row]}]}}


FORMS = (Form("mlxlink", is_mlxlink, read_mlxlink, 35),)
