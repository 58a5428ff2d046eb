"""The environment that jobs inherit is read from the files that set it, without running them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.catalog.node import environment_rules
from clusterproof.plugins.evidence.software import collect_environment as environment
from clusterproof.plugins.evidence.software.collect_assignments import (
    MAX_CHARACTERS,
    exported,
    plain,
    printed,
)
from clusterproof.plugins.evidence.software.facts import chosen_interfaces
from tests.builders.examples import examples

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.software.collect_assignments import Assignment

SNIPPETS = """export A=1
if x; then
fi
done
cat <<EOF
EOF
echo 'export B=3'
f() {
}
"
<<<x""".splitlines()
SHELL = st.lists(st.sampled_from(SNIPPETS) | st.text(max_size=30))
KINDS = (plain, exported, printed)


def settled(kind: Callable[[str], Iterable[Assignment]], text: str) -> list[tuple[str, str, bool]]:
    """Name, value and whether the setting is conditional."""
    return [(name, value, conditional) for _, name, value, conditional in kind(text)]


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("NCCL_DEBUG=WARN", [("NCCL_DEBUG", "WARN", False)]),
        ("  NCCL_ALGO=Ring,Tree  ", [("NCCL_ALGO", "Ring,Tree", False)]),
        ("NCCL_SOCKET_IFNAME==ens1f0", [("NCCL_SOCKET_IFNAME", "=ens1f0", False)]),
        ('FI_PROVIDER="efa"', [("FI_PROVIDER", "efa", False)]),
        ("export FI_PROVIDER='efa'", [("FI_PROVIDER", "efa", False)]),
        ("# NCCL_ALGO=Ring", []),
        ("NCCL_ALGO", []),
        ("= x", []),
    ],
)
def test_a_plain_file_sets_what_its_lines_say(text: str, data: object) -> None:
    assert settled(plain, text) == data


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("export A=1", [("A", "1", False)]),
        ("export A=1 B='2 3'", [("A", "1", False), ("B", "2 3", False)]),
        ("export A=1; export B=2 # why", [("A", "1", False), ("B", "2", False)]),
        ("A=1\nexport A", [("A", "1", False)]),
        ("A=1", []),
        ("A=1 command", []),
        ("export A", []),
        ("[ -e /x ] && export A=1", [("A", "1", True)]),
        ("if true; then\n  export A=1\nfi\nexport B=2", [("A", "1", True), ("B", "2", False)]),
        ("if true; then export A=1; fi\nexport B=2", [("A", "1", True), ("B", "2", False)]),
        ("tune() {\n  export A=1\n}\nexport B=2", [("A", "1", True), ("B", "2", False)]),
        ("for x in 1 2; do\nexport A=$x\ndone", [("A", "$x", True)]),
        ("cat >/etc/x <<EOF\nexport A=1\nEOF\nexport B=2", [("B", "2", False)]),
        ("grep x <<<word\nexport B=2", [("B", "2", False)]),
        ("echo $((1<<2))\nexport B=2", [("B", "2", False)]),
        ("echo 'export A=1'", []),
        ("export A='unfinished", []),
    ],
)
def test_a_shell_script_sets_what_it_exports(text: str, data: object) -> None:
    assert settled(exported, text) == data


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ('echo "export A=1"', [("A", "1", False)]),
        ("echo export A=1", [("A", "1", False)]),
        ("print 'export A=1'", [("A", "1", False)]),
        ("printf 'export A=1\\n'", [("A", "1\\n", False)]),
        ("cat <<'EOF'\nexport A=1\nEOF\n", [("A", "1", False)]),
        ('if [ -e /x ]; then\n  echo "export A=1"\nfi', [("A", "1", True)]),
        ("export A=1", []),
        ("# echo export A=1", []),
    ],
)
def test_a_task_prolog_sets_what_it_prints(text: str, data: object) -> None:
    assert settled(printed, text) == data


@pytest.mark.parametrize("kind", KINDS)
@examples(100)
@given(lines=SHELL)
def test_any_text_is_read_without_a_crash_and_names_its_lines(
    kind: Callable[[str], Iterable[Assignment]], lines: list[str]
) -> None:
    text = "\n".join(lines)
    count = len(text.splitlines())
    assert all(1 <= line <= count and name.isidentifier() for line, name, _, _ in kind(text))


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_of_a_huge_file_only_the_beginning_is_read(kind: Callable[[str], Iterable[Assignment]]) -> None:
    text = f"{'x' * 79}\n" * (MAX_CHARACTERS // 80 + 1) + "export A=1\necho export A=1\n"
    assert settled(kind, text) == []


def evidence_of(root: Path, files: dict[str, str]) -> Any:
    """The collector's report on a host root with these files."""
    for path, text in files.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return environment.read(Node(str(root)))


@pytest.mark.parametrize(
    ("files", "unread", "text"),
    [
        (
            {f"{environment.PROFILES}/{number:03}.sh": "" for number in range(environment.MAX_PROFILES + 1)},
            environment.PROFILES,
            f"{environment.MAX_PROFILES + 1} files; expected at most {environment.MAX_PROFILES}",
        ),
        (
            {"/etc/nccl.conf": "NCCL_DEBUG=WARN\n" * (environment.MAX_VARIABLES + 1)},
            "/etc/nccl.conf",
            f"more than {environment.MAX_VARIABLES} variables before its end",
        ),
        (
            {"/etc/nccl.conf": "#" * (MAX_CHARACTERS + 1)},
            "/etc/nccl.conf",
            f"{MAX_CHARACTERS + 1} characters; expected at most {MAX_CHARACTERS}",
        ),
    ],
)
def test_what_is_left_out_of_very_much_is_said(tmp_path: Path, files: dict[str, str], unread: str, text: str) -> None:
    assert evidence_of(tmp_path, files)["unread"] == {unread: {"error": "E2BIG", "text": text}}


def test_a_search_path_is_reported_whole(tmp_path: Path) -> None:
    value = ":".join(f"/opt/libraries/{number:03}" for number in range(80))
    [variable] = evidence_of(tmp_path, {"/etc/environment": f"LD_LIBRARY_PATH={value}\n"})["variables"]
    assert variable["value"] == value


def test_only_variables_of_the_transport_are_reported(tmp_path: Path) -> None:
    files = {"/etc/environment": "AWS_SECRET_ACCESS_KEY=x\nNCCL_DEBUG=WARN\nMY_NCCL_KEY=y\nLD_PRELOAD=/x.so\n"}
    report = evidence_of(tmp_path, files)
    assert [variable["name"] for variable in report["variables"]] == ["NCCL_DEBUG", "LD_PRELOAD"]
    assert report["unread"] == {}


def test_each_variable_is_reported_with_its_file_and_line(tmp_path: Path) -> None:
    report = evidence_of(
        tmp_path,
        {
            "/etc/profile.d/efa.sh": "# EFA\nexport FI_PROVIDER=efa\n",
            "/etc/profile.d/readme.txt": "export FI_PROVIDER=tcp\n",
            "/etc/nccl.conf": "NCCL_DEBUG=WARN\n",
            "/etc/slurm/slurm.conf": "ClusterName=c\n#TaskProlog=/no\ntaskprolog = /opt/p.sh\n",
            "/opt/p.sh": "echo export NCCL_ALGO=Ring\n",
        },
    )
    assert [(variable["name"], variable["file"], variable["line"]) for variable in report["variables"]] == [
        ("FI_PROVIDER", "/etc/profile.d/efa.sh", 2),
        ("NCCL_DEBUG", "/etc/nccl.conf", 1),
        ("NCCL_ALGO", "/opt/p.sh", 1),
    ]
    assert report["files"] == ["/etc/profile.d/efa.sh", "/etc/nccl.conf", "/opt/p.sh"]


def test_a_prolog_that_does_not_exist_and_a_file_that_is_none_are_unread(tmp_path: Path) -> None:
    (tmp_path / "etc/nccl.conf").mkdir(parents=True)
    report = evidence_of(tmp_path, {"/etc/slurm/slurm.conf": "TaskProlog=/opt/none.sh\n"})
    assert {path: error["error"] for path, error in report["unread"].items()} == {
        "/etc/nccl.conf": "EISDIR",
        "/opt/none.sh": "ENOENT",
    }


def test_a_file_of_very_many_variables_is_reported_in_part(tmp_path: Path) -> None:
    text = "".join(f"NCCL_X{number}={'y' * 1900}\n" for number in range(1000))
    report = evidence_of(tmp_path, {"/etc/environment": text})
    assert len(report["variables"]) == environment.MAX_VARIABLES


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        ("ens", ["ens32", "ens33"]),
        ("ens32", ["ens32"]),
        ("eth,ens33", ["ens33"]),
        ("=ens3", []),
        ("=ens32,docker0", ["ens32", "docker0"]),
        ("^ens32", ["ens33"]),
        ("^docker,lo,veth", ["ens32", "ens33"]),
        ("^=ens3", ["ens32", "ens33"]),
        ("^ens", []),
        ("eth0", []),
        ("lo", ["lo"]),
    ],
)
def test_an_interface_is_chosen_as_the_guide_of_nccl_says(value: str, chosen: list[str]) -> None:
    assert list(chosen_interfaces(value, ["ens32", "ens33", "docker0", "lo"])) == chosen


@pytest.mark.parametrize(
    ("name", "value", "rules"),
    [
        ("FI_EFA_USE_DEVICE_RDMA", "1", {"device_rdma_without_rdma", "device_rdma_without_efa"}),
        ("FI_EFA_USE_DEVICE_RDMA", "0", {"device_rdma_off"}),
        ("FI_PROVIDER", "TCP", {"provider_is_not_efa"}),
        ("FI_PROVIDER", "tcp;ofi_rxm", {"provider_is_not_efa"}),
        ("FI_PROVIDER", "efa", {"provider_is_efa_without_efa"}),
        ("FI_PROVIDER", "^tcp", set()),
        ("NCCL_NET_PLUGIN", "ofi", {"efa_plugin_without_efa"}),
        ("NCCL_NET", "AWS Libfabric", {"network_is_efa_without_efa"}),
        ("NCCL_ALGO", "", set()),
        ("NCCL_DEBUG", "INFO", set()),
        ("MY_NCCL_ALGO", "Ring", set()),
    ],
)
def test_a_rule_speaks_of_its_variable_and_value_only(name: str, value: str, rules: set[str]) -> None:
    assert {label for label, rule in environment_rules().items() if rule.matches(name, value)} == rules
