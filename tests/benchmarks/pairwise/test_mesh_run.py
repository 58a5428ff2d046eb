"""What a run keeps of exchanges between RDMA devices: journal, reports, with redaction, and when resumed."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.pairwise.campaign import Campaign
from clusterproof.plugins.benchmarks.pairwise.journal import JournalError, read, write
from clusterproof.plugins.benchmarks.pairwise.planning import next_round
from clusterproof.plugins.benchmarks.pairwise.redaction import without_names
from clusterproof.plugins.evidence.pairs import Failure
from clusterproof.reports.document.pairs import pairs_section
from clusterproof.reports.formats.pairs_csv import measurements_csv
from clusterproof.reports.pairs import lines_of_pairs
from tests.benchmarks.pairwise.measured import names
from tests.benchmarks.pairwise.mesh_faults import HEALTHY_MESH, MESH_FAULTS, MISSING, MeshFault, mesh_run_of
from tests.benchmarks.pairwise.meshes import Wiring, measured, planned
from tests.reports.reported import result, run_of

DEVICE = mesh_run_of(MESH_FAULTS[0])


def kept(folder: Path, campaign: Campaign) -> Path:
    write(folder / "pairwise.jsonl", campaign.journal)
    return folder / "pairwise.jsonl"


def test_a_journal_keeps_each_exchange_and_how_they_are_judged(tmp_path: Path) -> None:
    (campaign,) = DEVICE.campaigns
    again = read(kept(tmp_path, campaign))
    assert again.measurements == campaign.journal.measurements
    assert again.plan == campaign.journal.plan
    assert Campaign(again).mesh == campaign.mesh


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ('"rail": 0', '"rail": 128', "128 is not the rail of an exchange"),
        ('"rail": 0', '"rail": true', "True is not the rail of an exchange"),
        ('"problem": ""', '"problem": 3', "expected texts of an exchange"),
        ('"rail_share": 0.1', '"rail_share": 5', "5 is not a share from 0 to 1"),
        ('"switch_share": 0.1', '"switch_share": -1', "-1 is not a share from 0 to 1"),
        ('"switch_share": 0.1', '"switch_share": NaN', "nan is not a share from 0 to 1"),
        ('"places": ["", ""]', '"places": ["", 3]', "are not the places of two devices"),
        ('"a": "mlx5_0 port 1", ', "", "'a'; expected a measurement"),
    ],
)
def test_a_journal_with_what_is_no_exchange_is_refused(tmp_path: Path, was: str, now: str, message: str) -> None:
    file = kept(tmp_path, DEVICE.campaigns[0])
    file.write_text(file.read_text().replace(was, now))
    with pytest.raises(JournalError, match=message):
        read(file)


def test_a_run_that_was_broken_off_goes_on_with_the_same_pairs() -> None:
    made, wiring = planned(16), Wiring([("n003", 5)])
    whole = measured(made, wiring)
    for cut in (0, 5, 8, 20, len(whole) - 1):
        number, left = next_round(made, whole[:cut])
        rest = [measurement for measurement in whole[cut:] if measurement.round == number]
        assert set(left) >= {measurement.pair for measurement in rest}
        assert left[: len(rest)] == tuple(measurement.pair for measurement in rest)


def test_with_names_hidden_neither_devices_nor_errors_say_a_name() -> None:
    hidden = without_names(
        DEVICE, {node: f"node-{node[1:]}" for node in names(16)}, lambda text: text.replace("counter", "xxxxxxx")
    )
    (campaign,) = hidden.campaigns
    assert campaign.mesh
    assert {finding.nodes for finding in campaign.mesh.findings} == {("node-003",)}
    problems = {
        exchange.problem for measured in campaign.journal.measurements for exchange in measured.reading.exchanges
    }
    assert problems == {"", "Failed status transport retry xxxxxxx exceeded (12)"}


def test_the_terminal_says_how_many_exchanges_arrived_and_nothing_of_bandwidth() -> None:
    line = " ".join(" ".join(lines_of_pairs(DEVICE, 100)).split())
    assert line.startswith("pairs 32 pairs of 16 nodes, measured 32 times with rdma_mesh: 252 of 256 exchanges between")
    assert line.endswith("RDMA devices arrived, on 8 rails")


def test_the_page_has_what_was_found_and_no_heat_map_of_bandwidths() -> None:
    section = pairs_section(DEVICE, names(16))
    assert section
    assert "n003: mlx5_5 port 1 (rail 5) reaches none of" in section.html
    assert '<h2 id="pairs-title">RDMA connectivity between nodes</h2>' in section.html
    assert "as shares of normal" not in section.html
    well = pairs_section(mesh_run_of(HEALTHY_MESH), names(16))
    assert well
    assert "No RDMA device, rail or path was found to carry nothing" in well.html


def test_the_terminal_says_why_no_exchange_was_made() -> None:
    none = Wiring(silent=dict.fromkeys(names(16), "no RDMA device on either node"), failure=Failure.NO_RDMA)
    line = " ".join(" ".join(lines_of_pairs(mesh_run_of(MeshFault("no devices", none)), 100)).split())
    assert line.endswith("with rdma_mesh: no exchange was made: no RDMA device on either node")


def test_the_page_praises_nothing_where_nothing_was_exchanged() -> None:
    silent = mesh_run_of(
        MeshFault(
            "nobody has the program", Wiring(silent=dict.fromkeys(names(16), MISSING), failure=Failure.NO_PROGRAM)
        )
    )
    section = pairs_section(silent, names(16))
    assert section
    assert "No exchange was made." in section.html
    assert "was found" not in section.html


def test_the_table_of_measurements_has_the_error_of_each_rail() -> None:
    table = measurements_csv(run_of([result("network.rdma_mesh", node) for node in names(16)], between=DEVICE))
    assert table
    failed = [row for row in table.splitlines() if "rail 5: Failed status transport retry" in row]
    assert len(failed) == 4
    assert all("n003" in row for row in failed)
