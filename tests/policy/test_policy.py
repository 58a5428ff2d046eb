"""A site's policy: read strictly, named in the header, applied to every result."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from clusterproof.plugins.catalog import PACKAGED, Catalog, thresholds
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import NO_POLICY, READINGS, Disabled, Policy
from clusterproof.plugins.core.result import Finding, Result, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.inventory import InventoryError
from clusterproof.plugins.policy import find_policy, policy_as_written, read_policy, refuse_empty
from clusterproof.plugins.suite.plugin import changes
from clusterproof.reports.to_do import to_do_line

CHECKS = Path(__file__).parents[2] / "checks"


def policy_of(folder: Path, text: str) -> Policy:
    """The policy in a text."""
    (folder / "site.toml").write_text(text)
    return read_policy(folder / "site.toml")


REFUSED = [
    ("[treshold.shm]\nminimum_gib = 1", "'treshold' is not a known key (did you mean thresholds?)"),
    ("[thresholds.shm]\nminimum_gb = 1", "no 'shm.minimum_gb' (did you mean shm.minimum_gib?)"),
    ('[thresholds.shm]\nminimum_gib = "16"', "minimum_gib is '16'; expected a number"),
    ("[thresholds.shm]\nminimum_gib = -1", "minimum_gib is -1; expected a number that is not negative"),
    ("[thresholds.shm]\nminimum_gib = nan", "minimum_gib is nan"),
    (f"[thresholds.shm]\nminimum_gib = {'9' * 5_000}", "site.toml"),
    (f"[thresholds.shm]\nminimum_gib = {'9' * 400}", "minimum_gib is 9999"),
    (
        '[thresholds]\n"shm.minimum_gib" = 3',
        "'shm.minimum_gib' is one word; expected minimum_gib under [thresholds.shm]",
    ),
    ("[expect]\ngpu = 8", "'gpu' is not a known resource (did you mean gpus?)"),
    ("[disabled]\nx = 1", "[disabled] [x] is a whole number; expected a table"),
    ('[disabled.x]\nreason = "r"', "there is no until; expected a day, such as 2026-12-31"),
    ("[disabled.x]\nuntil = 2026-12-31", "has no reason; expected one"),
    (
        '[disabled.x]\nreason = "r"\nuntil = 2026-12-31\nnodes = "gpu["',
        "nodes: 'gpu[' has a bracket without its partner",
    ),
    (
        "[disabled.x]\nreason = 'r'\nuntil = 2026-12-31\nnode = 'gpu1'",
        "'node' is not a known key (did you mean nodes?)",
    ),
    ("[owners.hardwear]\nname = 'DC'", "'hardwear' is not a known key (did you mean hardware?)"),
    ("[owners.hardware]\ncontact = '#dc'", "has no name; expected one"),
    ("[owners.hardware]\nname = 'DC'\nlink = 'javascript:x'", "expected one that begins with https://"),
    (
        '[disabled.x]\nreason = "r"\nuntil = "2026-12-31"',
        "until is '2026-12-31'; expected a day, such as 2026-12-31, without quotes",
    ),
    ('[disabled.x]\nreason = "r"\nuntil = 2026-12-31T10:00:00', "until is 2026-12-31 10:00:00; expected a day"),
    ('[verdicts.x]\nfail = "pass"', "fail is read as 'pass'; expected concern"),
    ('[verdicts.x]\npass = "fail"', "'pass' is not a known key"),
    ('[instance_type.mine]\ngpus = "eight"', "gpus is 'eight'; expected"),
    ("[instance_type.mine]\ngpsu = 8", "unknown key 'gpsu'"),
    ("[instance_type.mine]\ngpus = -8", "gpus is -8; expected no negative number"),
    ("[instance_type.mine]\ntrays = [9, -18]", "trays is [9, -18]; expected no negative number"),
    ('[instance_type."ml.p5.48xlarge"]\ngpus = 8\n[instance_type."p5.48xlarge"]\nnvme = 7', "with and without ml."),
    ('[mounts]\nexpected = "/fsx"', "expected is '/fsx'; expected a list of paths"),
    ('[mounts]\nexpected = ["fsx"]', "expected a list of paths that begin with /"),
    ("[versions]\ndriver = 580", "driver is a whole number; expected text"),
    ('[versions]\ndriver = "about 580"', "driver: "),
    ("[thresholds", "site.toml is not TOML"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_means_nothing_is_one_clear_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(InventoryError) as refused:
        policy_of(tmp_path, text)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_path_is_read_as_the_kernel_reports_it(tmp_path: Path) -> None:
    policy = policy_of(
        tmp_path, '[mounts]\nexpected = ["/fsx/", "//home//users", "/fsx", "/"]\ncheckpoints = ["/fsx/c/"]'
    )
    assert (policy.mounts, policy.checkpoints) == (("/fsx", "/home/users", "/"), ("/fsx/c",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[modules]\nlustre = 'loaded'", "expects 1 module in an image"),
        ("[libraries]\n'libnccl.so.2' = 'whole'\n'libnccl-net.so' = 'absent'", "expects 2 libraries in an image"),
        ("[services]\nnvidia-persistenced = 'active'", "expects 1 service in an image"),
        ("[sizes]\nmemory_gib = '> 1'", "expects 1 size in an image"),
    ],
)
def test_the_header_says_what_a_manifest_expects(tmp_path: Path, text: str, said: str) -> None:
    assert list(changes(policy_of(tmp_path, text))) == [said]


def test_its_own_file_stands_before_the_projects(tmp_path: Path) -> None:
    assert find_policy(None, tmp_path) is NO_POLICY
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert find_policy(None, tmp_path) is NO_POLICY
    (tmp_path / "pyproject.toml").write_text("[tool.clusterproof.expect]\ngpus = 4\n")
    assert find_policy(None, tmp_path).expect == {"gpus": 4}
    (tmp_path / "clusterproof.toml").write_text("[expect]\ngpus = 8\n")
    assert find_policy(None, tmp_path).expect == {"gpus": 8}
    (tmp_path / "named.toml").write_text("[expect]\ngpus = 2\n")
    assert find_policy("named.toml", tmp_path).expect == {"gpus": 2}


def test_a_named_pyproject_is_read_as_one_that_is_found(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "x"\n[tool.clusterproof.expect]\ngpus = 4\n')
    assert find_policy("pyproject.toml", tmp_path) == find_policy(None, tmp_path)
    assert policy_as_written("pyproject.toml", tmp_path) == ("", {"expect": {"gpus": 4}})
    refuse_empty("pyproject.toml", tmp_path)
    project.write_text('[project]\nname = "x"\n')
    with pytest.raises(InventoryError, match=r"^pyproject.toml has no \[tool.clusterproof\]; expected one$"):
        find_policy("pyproject.toml", tmp_path)


def test_a_named_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="No such file"):
        find_policy("nowhere.toml", tmp_path)


def test_a_threshold_of_the_sites_own_stands_before_the_catalogues_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    catalog = Catalog.of(policy_of(tmp_path, "[thresholds.shm]\nminimum_gib = 32\n"))
    assert catalog.threshold("shm.minimum_gib") == 32
    assert PACKAGED.threshold("shm.minimum_gib") == thresholds()["shm.minimum_gib"].value == 16
    assert catalog.threshold("shm.used_concern_percent") == PACKAGED.threshold("shm.used_concern_percent")


def test_an_instance_type_can_be_the_sites_own(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, '[instance_type."hgx-h100"]\ngpus = 8\nnvswitch = true\n')
    mine = Catalog.of(policy).instance_type("hgx-h100")
    assert mine
    assert PACKAGED.instance_type("hgx-h100") is None
    assert (mine.gpus, mine.nvswitch, mine.efa) == (8, True, None)


@pytest.mark.parametrize("name", ["p5.48xlarge", "ml.p5.48xlarge", "DGX H100"])
def test_a_type_of_the_catalogue_keeps_the_numbers_that_the_policy_does_not_change(tmp_path: Path, name: str) -> None:
    known = PACKAGED.instance_type(name)
    changed = Catalog.of(policy_of(tmp_path, f'[instance_type."{name}"]\nnvme = 7\n')).instance_type(name)
    assert known
    assert changed
    assert changed.nvme == 7
    assert replace(changed, nvme=known.nvme, source=known.source) == known


def test_nodes_under_two_policies_go_by_their_own_numbers_side_by_side() -> None:
    policies = (NO_POLICY, Policy(thresholds={"shm.minimum_gib": 32}), NO_POLICY)
    nodes = [Node(Target("gpu001"), NodeEvidence("gpu001"), policy=policy) for policy in policies]
    assert [node.threshold("shm.minimum_gib") for node in nodes] == [16, 32, 16]


def test_no_check_goes_by_the_catalogue_past_the_policy() -> None:
    past = re.compile(r"\bPACKAGED\b|\bthreshold_row\b|\bthresholds\(|\binstance_types\(")
    files = list(CHECKS.rglob("test_*.py"))
    assert len(files) > 50
    assert not [file.name for file in files if past.search(file.read_text())]


def test_a_check_is_disabled_up_to_and_including_its_day() -> None:
    rule = Disabled("reason", date(2026, 12, 31))
    assert rule.is_active(date(2026, 12, 31))
    assert not rule.is_active(date(2027, 1, 1))


def test_a_check_is_disabled_on_the_nodes_that_the_rule_names_and_no_others(tmp_path: Path) -> None:
    rule = f"reason = 'r'\nuntil = {date.today():%Y-%m-%d}\n"
    some = policy_of(tmp_path, f"[disabled.x]\n{rule}nodes = 'gpu[009-016]'")
    assert [bool(some.disables("x", node)) for node in ("gpu008", "gpu009", "gpu016")] == [False, True, True]
    assert policy_of(tmp_path, f"[disabled.x]\n{rule}").disables("x", "gpu008")


SITE = """
[owners.hardware]
name = "DC operations"
contact = "#dc-ops"
link = "https://wiki.example.com/dc"

[owners.hyperpod-nccl]
name = "Fabric team"
"""


@pytest.mark.parametrize(
    ("result", "is_hyperpod", "words"),
    [
        (
            Result("gpu.ecc", "n", Verdict.FAIL, owner="a", team="hardware"),
            False,
            "DC operations (#dc-ops, https://wiki.example.com/dc)",
        ),
        (Result("net.x", "n", Verdict.FAIL, owner="hyperpod-nccl", team="image"), True, "Fabric team"),
        (
            Result("os.x", "n", Verdict.CONCERN, owner="hyperpod-ssm", section="K", team="access"),
            True,
            "hyperpod-ssm § K",
        ),
        (Result("os.x", "n", Verdict.INCOMPLETE, owner="hyperpod-ssm", section="K", team="access"), False, "access"),
        (Result("own.check", "n", Verdict.FAIL), True, ""),
    ],
)
def test_a_finding_goes_to_whom_the_site_names_else_to_the_skill_on_hyperpod_else_to_a_word(
    tmp_path: Path, result: Result, is_hyperpod: bool, words: str
) -> None:
    policy = replace(policy_of(tmp_path, SITE), names_skills=is_hyperpod)
    assert policy.read(result).team == words


def test_what_is_read_as_a_failure_goes_to_whom_the_site_names_too(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, f'{SITE}[verdicts."gpu.ecc"]\n"not applicable" = "fail"\n')
    read = policy.read(Result("gpu.ecc", "n", Verdict.NOT_APPLICABLE, "no GPU", team="hardware"))
    assert (read.verdict, read.team[:13]) == (Verdict.FAIL, "DC operations")


def test_a_concern_that_is_read_as_a_failure_leaves_the_action_of_the_failure_beside_it(tmp_path: Path) -> None:
    policy = policy_of(tmp_path, '[verdicts."gpu.ecc"]\nconcern = "fail"\n')
    found = (Finding(Verdict.FAIL, "uncorrected", action="reset or reboot"), Finding(Verdict.CONCERN, "corrected"))
    read = policy.read(with_findings(Result("gpu.ecc", "n", Verdict.FAIL), found))
    assert [finding.verdict for finding in read.findings] == [Verdict.FAIL, Verdict.FAIL]
    assert (read.action, to_do_line([read])) == ("reset or reboot", "RESET OR REBOOT n (ecc) · 0 fit")


def test_nothing_can_be_read_as_a_pass() -> None:
    assert all(Verdict.PASS not in others for others in READINGS.values())
    assert Verdict.PASS not in READINGS


def test_the_rule_of_a_check_stands_before_that_of_its_owner() -> None:
    policy = Policy(
        readings={
            "hyperpod-nccl": {Verdict.FAIL: Verdict.CONCERN},
            "network.memlock": {Verdict.CONCERN: Verdict.FAIL},
        }
    )
    concern = Result("network.memlock", "gpu001", Verdict.CONCERN, owner="hyperpod-nccl")
    failed = Result("network.efa_rate", "gpu001", Verdict.FAIL, owner="hyperpod-nccl", message="slow; expected fast")
    assert policy.read(concern).verdict is Verdict.FAIL
    read = policy.read(failed)
    assert (read.verdict, read.severity) == (Verdict.CONCERN, "warning")
    assert read.message == "slow; expected fast (by policy: fail of hyperpod-nccl is concern)"
