"""What RDMA needs: kernel modules by lsmod, the files of /dev/infiniband, and what `fi_info` finds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from clusterproof.plugins.evidence.field import MAX_OUTPUT
from clusterproof.plugins.evidence.network.collect_rdma import MODULES
from clusterproof.plugins.evidence.network.facts import error
from clusterproof.plugins.evidence.parsing import CaptureError, Form, typed_above

_PROVIDER = re.compile(
    r"^(?:\[\d{1,6},\d{1,6}\]<std(?:out|err)>:|\d{1,6}: )?[ \t]{0,8}(?:provider|domain):[ \t]{1,8}\S", re.MULTILINE
)


def is_fi_info(text: str) -> bool:
    """Whether it lists providers as fi_info does, or says that there is none."""
    return (bool(_PROVIDER.search(text)) and "fabric" in text) or bool(error(text[:MAX_OUTPUT]))


def read_fi_info(text: str) -> Mapping[str, object]:
    """The collector `libfabric`; its exit status is not known. Raises CaptureError where it is too long."""
    if len(text) > MAX_OUTPUT:
        raise CaptureError(f"fi_info's output has {len(text)} characters; expected at most {MAX_OUTPUT}")
    return {"libfabric": {"command": "fi_info", "output": text}}


_OF_EFA = re.compile(r"\bfi_info (?=.{0,80}-p efa\b)(?=.{0,80}-t FI_EP_RDM\b)")
_DOMAIN = re.compile(r"^[ \t]{0,8}domain: (\S{1,100})$", re.MULTILINE)


def is_domains(text: str) -> bool:
    """Whether it is what `grep domain` leaves of fi_info below its command."""
    return bool(_OF_EFA.search(typed_above(text)) and _DOMAIN.search(text)) and not is_fi_info(text)


def read_domains(text: str) -> Mapping[str, object]:
    """The collector `libfabric`: the domains, of the provider and the endpoint that were asked for."""
    domains = _DOMAIN.findall(text)[:MAX_FILES]
    output = "".join(f"provider: efa\n    domain: {domain}\n    type: FI_EP_RDM\n" for domain in domains)
    return {"libfabric": {"command": "fi_info", "output": output}}


MAX_FILES = 512

_LSMOD = re.compile(r"^Module\s{1,40}Size\s{1,20}Used by", re.MULTILINE)
_FILE = re.compile(
    r"(?:/dev/infiniband/)?(uverbs\d{1,4}|rdma_cm|umad\d{1,4}|issm\d{1,4}|by-ibdev|by-path|hfi1_\d{1,3})"
)


def is_lsmod(text: str) -> bool:
    """Whether it is lsmod's."""
    return bool(_LSMOD.search(text))


def read_lsmod(text: str) -> Mapping[str, object]:
    """The modules of the collector `rdma`."""
    loaded = {cells[0] for line in text.split("\n") if len(cells := line.split()) >= 3 and cells[1].isdecimal()}
    return {"rdma": {"modules": [name for name in MODULES if name in loaded]}}


def is_device_files(text: str) -> bool:
    """Whether it is `ls /dev/infiniband`, in one line or several."""
    names = list(_files(text))
    return bool(names) and all(_FILE.fullmatch(name) for name in names) and any("uverbs" in name for name in names)


def read_device_files(text: str) -> Mapping[str, object]:
    """The device files of the collector `rdma`."""
    files = (_FILE.fullmatch(name) for name in _files(text))
    return {"rdma": {"uverbs": [name[1] for name in files if name and name[1].startswith("uverbs")][:MAX_FILES]}}


def _files(text: str) -> Iterator[str]:
    """The names in `ls`, with -l the last word of each line."""
    for line in text[:100_000].split("\n"):
        cells = line.split()
        if len(cells) > 6 and cells[0][:1] in "cdlb-":
            yield cells[-1]
        elif cells[:1] not in (["total"], ["/dev/infiniband:"]):
            yield from cells


FORMS = (
    Form("lsmod", is_lsmod, read_lsmod),
    Form("ls /dev/infiniband", is_device_files, read_device_files),
    Form("fi_info", is_fi_info, read_fi_info),
    Form("fi_info | grep domain", is_domains, read_domains, 40),
)
