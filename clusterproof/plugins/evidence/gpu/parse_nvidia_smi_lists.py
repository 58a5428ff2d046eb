"""`nvidia-smi -L`, `nvlink -s`, `nvlink -e`: a line for each GPU, and lines about it below."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.evidence.gpu.parse_nvidia_words import bit_error_rate, error, not_understood, unsupported
from clusterproof.plugins.evidence.parsing import CaptureError, Form

MAX_LINKS = 64  # of one GPU; none has more than 36
_MAX_LINE = 400
_MAX_TEXT = 4_000_000  # characters; all counters of sixteen GPUs are a quarter of that
_GPU = re.compile(
    r"GPU (?P<index>\d{1,3}): "
    r"(?:(?P<name>.{1,100}?) \(UUID: (?P<uuid>[^)\s]{1,60})\)(?P<rest>.*)|(?P<bare>[^(:]{1,100}))"
)
_NUMBERED = re.compile(r"GPU (\d{1,3}): ")
_MIG = re.compile(r"MIG \S+\s+Device\s+\d{1,3}: \(UUID: .*")
_LINK = re.compile(r"Link (\d{1,2}): (<?inactive>?|[\d.]{1,10} GB/s|\[?[A-Za-z/! ]{3,30}\]?)", re.IGNORECASE)
_COUNTER = re.compile(r"Link (\d{1,2}): ([A-Za-z][A-Za-z ()-]{2,60}?): (\d{1,18}|\S.*)")
_KINDS = {  # the words of nvlink -e, and the collector's
    "replay errors": "replay",
    "recovery errors": "recovery",
    "crc errors": "crc_flit",
    "crc flit errors": "crc_flit",
    "crc data errors": "crc_data",
    "malformed packet errors": "malformed",
    "buffer overrun errors": "overrun",
    "rx errors": "receive",
    "local link integrity errors": "integrity",
    "link recovery successful events": "recovery",
    "link recovery failed events": "recovery_failed",
    "effective ber": "effective_ber",
    "symbol ber": "symbol_ber",
}
_NOT_IN_MIG = {"mig_mode": False}  # of a GPU in MIG mode the driver reports no states
_LEFT_OUT = {"error": "UNKNOWN", "text": "nvidia-smi nvlink -s leaves this link out"}
_ALL_DOWN = "all links are inactive"
_IN_MIG = "not supported for devices in mig mode"
_NO_NVLINK = "does not have or support nvlink"


def _blocks(text: str) -> Iterator[tuple[dict[str, object], list[str]]]:
    """Each GPU that a line names, and the lines below it; what stands behind its name counts as below."""
    below: list[str] = []
    for raw in text[:_MAX_TEXT].split("\n"):
        line = raw.strip()[:_MAX_LINE]
        named = _GPU.fullmatch(line)
        if named:
            below = [named["rest"].strip()] if named["rest"] else []
            uuid = {"uuid": named["uuid"]} if named["uuid"] else {}
            yield {"index": int(named["index"]), "name": named["name"] or named["bare"], **uuid, "lost": None}, below
        elif line:
            below.append(line)


def _all_blocks(text: str) -> list[tuple[dict[str, object], list[str]]]:
    blocks = list(_blocks(text))[:128]
    if not blocks:
        raise CaptureError("it names no GPU")
    return blocks


def _is_list(text: str) -> bool:
    """Whether the lines name GPUs and MIG devices: nvlink's outputs have other lines below their GPUs."""
    blocks = [(gpu, below) for gpu, below in _blocks(text)] if "(UUID: " in text else []
    named = [gpu for gpu, _ in blocks if "uuid" in gpu]
    return bool(named) and not any(_is_of_nvlink(line) for _, below in blocks for line in below[:2])


def _is_of_nvlink(line: str) -> bool:
    return line.startswith("Link ") or "nvlink" in line.lower()


def _read_list(text: str) -> Mapping[str, object]:
    gpus = []
    for gpu, below in _all_blocks(text):
        if "uuid" not in gpu:
            continue
        partitions = any(_MIG.fullmatch(line) for line in below)
        gpus.append({**gpu, "mig_mode": True} if partitions else gpu)
    nvml: dict[str, object] = {"init": None, "gpus": gpus}
    numbers = [gpu["index"] for gpu in gpus]
    is_whole = numbers == list(range(len(gpus))) and all(number < len(gpus) for number, _ in _of_no_list(text))
    return {"nvml": {**nvml, "count": len(gpus)} if is_whole else nvml}


def _of_no_list(text: str) -> list[tuple[int, str]]:
    """The numbers of GPUs in lines without a whole UUID: cut ones, and `GPU 0: OK` of a tool that has listed them."""
    lines = (line.strip()[:_MAX_LINE] for line in text[:_MAX_TEXT].split("\n"))
    numbered = ((_NUMBERED.match(line), _GPU.fullmatch(line), line) for line in lines)
    return [(int(match[1]), line) for match, gpu, line in numbered if match and not (gpu and gpu["uuid"])]


def _unclear_in_list(text: str) -> Sequence[str]:
    """A line on those that only look like a list's own."""
    others = [line for _, line in _of_no_list(text)]
    if not others:
        return ()
    return [f"nvidia-smi -L: {number_of(len(others), 'line')} below it of no known form: {listed(others)}"]


def _is_status(text: str) -> bool:
    """Whether lines below GPUs say how fast links are, or why nothing is said of them."""
    return "GPU " in text and any(_states(below) for _, below in list(_blocks(text)))


def _read_status(text: str) -> Mapping[str, object]:
    *others, last = [{**gpu, **_states(below)} for gpu, below in _all_blocks(text)]
    return {"nvml": {"init": None, "gpus": [*others, _with_cut_links(last, others)]}}


def _with_cut_links(last: dict[str, object], others: list[dict[str, object]]) -> dict[str, object]:
    """The last GPU of an output that may end early: of links that the others of its model have nothing is known."""
    listed = [gpu.get("nvlinks") for gpu in others if gpu["name"] == last["name"]]
    most = max((len(links) for links in listed if isinstance(links, list)), default=0)
    own = last.get("nvlinks")
    if not isinstance(own, list) or not own:
        return last
    return {**last, "nvlinks": [*own, *[_LEFT_OUT] * (most - len(own))]}


def _states(lines: list[str]) -> dict[str, object]:
    """Whether each link is up; what is said instead where nothing is said of the links."""
    links: dict[int, object] = {}
    for line in lines:
        link = _LINK.fullmatch(line)
        state = _state(link[2]) if link else None
        if link and state is not None:
            links.setdefault(int(link[1]), state)
        elif not link and "nvlink" in line.lower():
            return _instead(line.lower())
    if not links:
        return {}
    states = [links.get(number, _LEFT_OUT) for number in range(min(max(links) + 1, MAX_LINKS))]
    return {**_NOT_IN_MIG, "nvlinks": states}


def _state(word: str) -> object:
    """Whether a link is up, an error, or None for a word that is not about that."""
    if "inactive" in word.lower():
        return False
    return True if word.endswith("GB/s") else error(word)


def _instead(line: str) -> dict[str, object]:
    if _ALL_DOWN in line:
        return {**_NOT_IN_MIG, "nvlinks": []}  # how many there are it does not say
    if _IN_MIG in line:
        return {"mig_mode": True, "nvlinks": unsupported("not reported while MIG is on")}
    if _NO_NVLINK in line:
        return {"nvlinks": unsupported("no NVLink"), "nvlink_errors": unsupported("no NVLink")}
    return {"nvlinks": {"error": "UNKNOWN", "text": line[:200]}}


def _is_counters(text: str) -> bool:
    return any(_COUNTER.fullmatch(line.strip()[:_MAX_LINE]) for line in text.split("\n", 50)[:50])


def _read_counters(text: str) -> Mapping[str, object]:
    gpus = [{**gpu, **_counters(below)} for gpu, below in _all_blocks(text)]
    return {"nvml": {"init": None, "gpus": gpus}}


def _counters(lines: list[str]) -> dict[str, object]:
    """By kind, the links whose counter is not zero."""
    kinds: dict[str, dict[str, object]] = {}
    for line in lines:
        counter = _COUNTER.fullmatch(line)
        kind = _KINDS.get(counter[2].lower().strip()) if counter else None
        if counter and kind:
            links = kinds.setdefault(kind, {})
            count = _count(kind, counter[3])
            if count and counter[1] not in links:
                links[counter[1]] = count
    return {"nvlink_errors": kinds} if kinds else {}


def _count(kind: str, word: str) -> object:
    """A counter or a bit error rate, or why there is none."""
    if kind.endswith("_ber"):
        rate = bit_error_rate(word)
        return rate if rate is not None else error(word) or not_understood(word)
    return int(word) if word.isdecimal() else error(word) or not_understood(word)


def _begins(line: str) -> bool:
    return line.lstrip().startswith("GPU 0: ") and "(UUID: " in line


FORMS = (
    Form("nvidia-smi -L", _is_list, _read_list, 40, _begins, _unclear_in_list),
    Form("nvidia-smi nvlink -s", _is_status, _read_status, 60, _begins),
    Form("nvidia-smi nvlink -e", _is_counters, _read_counters, 60, _begins),
)
