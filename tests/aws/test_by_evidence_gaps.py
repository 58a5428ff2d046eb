"""Nodes that report little about themselves, or that the account does not know: what is asked and incomplete."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from tests.aws.ec2 import with_instances
from tests.aws.evidence_runs import (
    ALL,
    FSX,
    INCOMPLETE,
    NA,
    NETWORK,
    NOWHERE,
    PASS,
    answering,
    on_ec2,
    ran,
    verdicts,
)
from tests.aws.service import Service
from tests.aws.storage import LUSTRE_MOUNT, CloudWatch, lustre, mounting, quiet_lustre
from tests.builders.recordings import boot, node, unreached
from tests.builders.runs import Runs


def elsewhere(name: str) -> NodeEvidence:
    """A node of another vendor."""
    imds = Collected(Status.ABSENT, detail="the firmware does not say that this is an EC2 instance")
    platform = {"vendor": "Dell Inc.", "product": "PowerEdge XE9680"}
    return node(name, boot=boot(hostname=name), platform=platform, imds=imds, mounts=mounting(LUSTRE_MOUNT))


def test_nodes_elsewhere_are_not_looked_up(runs: Runs, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, *(elsewhere(f"n{number}") for number in (1, 2, 3)))
    by_check = ran(runs)
    assert by_check == dict.fromkeys(ALL, (NA, NOWHERE))
    assert service.calls == []


def test_without_credentials_each_check_says_what_it_would_need(
    runs: Runs, service: Service, ids: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    by_check = ran(runs)
    known = {"single_az": PASS}  # an instance knows its own zone
    assert verdicts(by_check) == dict.fromkeys(ALL, NA) | known
    message = "AWS was not queried: no AWS credentials here; expected some in"
    assert all(message in by_check[name][1] for name in ALL - known.keys())
    assert service.calls == []


def test_a_profile_without_credentials_leaves_incomplete_what_was_to_be_asked_with_it(
    runs: Runs, service: Service, ids: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(variable)
    (runs.folder / "config").write_text("[profile empty]\nregion = us-west-2\n", encoding="utf-8")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(runs.folder / "config"))
    by_check = ran(runs, "--profile", "empty")
    assert verdicts(by_check) == dict.fromkeys(ALL, INCOMPLETE) | {"single_az": PASS}


def test_half_of_the_credentials_cost_what_is_asked_with_them_and_no_evidence(
    runs: Runs, service: Service, ids: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    by_check = ran(runs)
    assert verdicts(by_check) == dict.fromkeys(ALL, INCOMPLETE) | {"single_az": PASS}
    assert "Partial credentials found in env" in by_check["subnet_private"][1]


def test_ids_that_the_account_does_not_know_cost_what_is_asked_about_them(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_instances(service)
    quiet_lustre(watch, lustre(service))
    answering(monkeypatch, *(on_ec2(f"n{number}", f"i-0000000000000000{number}") for number in (1, 2, 3)))
    by_check = ran(runs)
    assert {name for name, verdict in verdicts(by_check).items() if verdict is PASS} == {
        *FSX,
        "single_az",
        "service_quotas",
    }
    assert all(by_check[name][0] is INCOMPLETE for name in NETWORK | {"image_uniform"})


def test_an_id_that_the_account_does_not_know_is_not_passed_over_beside_others(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ids = with_instances(service)
    quiet_lustre(watch, lustre(service))
    answering(monkeypatch, on_ec2("n1", ids[0]), on_ec2("n2", ids[1]), on_ec2("n3", "i-00000000000000003"))
    by_check = ran(runs)
    assert all(by_check[name][0] is INCOMPLETE for name in NETWORK | {"image_uniform"})
    assert "AWS describes no instance of n3" in by_check["subnet_private"][1]


def test_nodes_that_do_not_answer_prove_nothing(runs: Runs, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, *(unreached(f"n{number}") for number in (1, 2, 3)))
    assert set(verdicts(ran(runs)).values()) == {INCOMPLETE}
    assert service.calls == []


HUNG = Collected(Status.TIMED_OUT, detail="no answer in 10 s")


@pytest.mark.parametrize(
    ("imds", "message"),
    [
        (HUNG, "no node says whether it is an EC2 instance"),
        ({"identity": {"error": "ETIMEDOUT"}}, "no AWS region"),  # only an instance asks its metadata service
    ],
)
def test_nodes_whose_firmware_was_not_read_are_not_taken_for_those_of_another_vendor(
    runs: Runs, service: Service, monkeypatch: pytest.MonkeyPatch, imds: object, message: str
) -> None:
    for variable in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(variable)
    unread = {"platform": HUNG, "imds": imds, "mounts": mounting(LUSTRE_MOUNT)}
    answering(monkeypatch, *(node(f"n{number}", boot=boot(hostname=f"n{number}"), **unread) for number in (1, 2, 3)))
    by_check = ran(runs)
    assert set(verdicts(by_check).values()) == {INCOMPLETE}, by_check
    assert message in by_check["subnet_private"][1]


def test_an_instance_without_its_metadata_service_is_looked_up_by_the_region_that_is_given(
    runs: Runs, service: Service, watch: CloudWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet_lustre(watch, lustre(service))
    silent = {
        "token": {"error": "ETIMEDOUT", "text": "no answer in 1 s"},
        "identity": {"error": "ETIMEDOUT", "text": ""},
    }
    answering(monkeypatch, *(on_ec2(f"n{number}", "", imds=silent) for number in (1, 2, 3)))
    by_check = ran(runs, "--region", "us-west-2")
    assert {name for name, verdict in verdicts(by_check).items() if verdict is PASS} == FSX
