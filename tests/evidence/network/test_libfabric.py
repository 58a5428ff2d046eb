"""fi_info's output, parsed into domains."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.evidence.network.facts_fabric import domains, error
from tests.builders.samples import Sample, of_topic

CAPTURED = {
    "eks-g4dn-mpi-prefixed.txt": (("rdmap197s0-rdm",), ""),
    "eks-noefa-grep.txt": (("efa_0-rdm",), ""),
    "eks-p5-mpi-prefixed.txt": (("rdmap79s0-rdm", "rdmap201s0-rdm"), ""),
    "graviton-efa_0.txt": (("efa_0-rdm",), "fi_getinfo: -61"),
    "hyperpod-efa-loopback-log.txt": ((), ""),
    "legacy-rxd-rxr.txt": (("efa_0-rdm",), ""),
}


@dataclass(frozen=True)
class Entry:
    """One block of fi_info's short form."""

    provider: str = "efa"
    fabric: str = "efa"
    domain: str = "rdmap16s27-rdm"
    type: str = "FI_EP_RDM"

    def __str__(self) -> str:
        return (
            f"provider: {self.provider}\n    fabric: {self.fabric}\n    domain: {self.domain}\n"
            f"    version: 202.0\n    type: {self.type}\n    protocol: FI_PROTO_EFA\n"
        )


@pytest.mark.parametrize("sample", of_topic("fi_info"))
def test_every_capture_gives_its_domains(sample: Sample) -> None:
    assert (domains(sample.text), error(sample.text)) == CAPTURED[sample.name]


def test_ranks_that_print_at_the_same_time_do_not_mix() -> None:
    entries = (Entry(domain="rdmap79s0-rdm"), Entry(domain="rdmap9s0-dgrm", type="FI_EP_DGRAM"))
    lines = zip(*(str(entry).splitlines() for entry in entries), strict=True)
    output = "\n".join(f"[1,{rank}]<stdout>:{line}" for pair in lines for rank, line in enumerate(pair))
    assert domains(output) == ("rdmap79s0-rdm",)


def test_a_device_that_is_listed_once_per_fabric_is_one_domain() -> None:
    output = "".join(
        f"{Entry(fabric=fabric, domain=f'rdmap{bus}s0-rdm')}" for bus in range(32) for fabric in ("efa", "efa-direct")
    )
    assert domains(output) == tuple(f"rdmap{bus}s0-rdm" for bus in range(32))


@pytest.mark.parametrize(
    "entry",
    [
        Entry(type="FI_EP_DGRAM", domain="rdmap16s27-dgrm"),
        Entry(type="FI_EP_DGRAM"),
        Entry(provider="tcp;ofi_rxm", fabric="10.0.0.0/16", domain="ens32"),
        Entry(provider="tcp", domain="lo", type="FI_EP_MSG"),
        Entry(provider="shm", fabric="shm", domain="shm"),
        Entry(provider="verbs;ofi_rxm", domain="mlx5_0"),
        Entry(provider="efa;ofi_rxd", domain="efa_0-dgrm"),
        Entry(provider="efafake"),
    ],
    ids=lambda entry: f"{entry.provider} {entry.type} {entry.domain}",
)
def test_what_is_not_a_reliable_datagram_endpoint_of_efa_is_no_domain(entry: Entry) -> None:
    assert domains(f"{entry}{Entry(domain='rdmap79s0-rdm')}{entry}") == ("rdmap79s0-rdm",)


def test_a_legacy_provider_over_efa_is_efa() -> None:
    assert domains(str(Entry(provider="efa;ofi_rxr", domain="efa_0-rdm"))) == ("efa_0-rdm",)


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[12,3071]<stderr>:", "0: ", ""])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_prefixes_and_line_endings_change_nothing(prefix: str, ending: str) -> None:
    lines = f"{Entry()}{Entry(domain='rdmap32s27-rdm')}".splitlines()
    assert domains("".join(f"{prefix}{line}{ending}" for line in lines)) == (
        "rdmap16s27-rdm",
        "rdmap32s27-rdm",
    )


def test_an_entry_that_is_cut_before_its_domain_is_no_domain() -> None:
    assert domains("provider: efa\n    fabric: efa\n    dom") == ()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("fi_getinfo: -61\n", "fi_getinfo: -61"),
        ("fi_getinfo: -61 (No data available)\n", "fi_getinfo: -61 (No data available)"),
        ("[1,0]<stderr>:fi_getinfo: -61\n", "fi_getinfo: -61"),
        ("libfabric:1234:core:core:fi_getinfo_():1370<warn> x\nfi_getinfo: -12\n", "fi_getinfo: -12"),
        (
            "fi_info: error while loading shared libraries: libefa.so.1",
            "fi_info: error while loading shared libraries: libefa.so.1",
        ),
        (str(Entry()), ""),
        ("", ""),
    ],
)
def test_a_failure_is_reported_in_libfabrics_words(output: str, message: str) -> None:
    assert error(output) == message


@given(st.text())
def test_no_output_makes_it_raise_and_noise_has_no_domain(noise: str) -> None:
    error(noise)
    assert domains(noise.replace("provider", "")) == ()


pieces = st.sampled_from(
    [*str(Entry()).splitlines(keepends=True), "[1,0]<stdout>:", "provider: ", "efa;", "\r", "-rdm"]
)


@given(st.lists(pieces | st.text(max_size=8), max_size=60).map("".join))
def test_every_domain_that_is_read_was_printed_as_a_domain(output: str) -> None:
    assert all(re.search(rf"domain:\s*{re.escape(domain)}", output) for domain in domains(output))
    assert len(set(domains(output))) == len(domains(output))
