"""How ranks find each other under Slurm: chosen from what each version of Slurm lists, unless the user sets it."""

from __future__ import annotations

import pytest

from clusterproof.plugins.benchmarks.launchers.pmi import advice, chosen, default, is_without_library, listed

DEBIAN_12 = (
    "MPI plugin types are...\n\tpmix\n\tnone\n\tcray_shasta\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n"
)
SLURM_20 = "srun: MPI types are...\nsrun: cray_shasta\nsrun: pmi2\nsrun: none\n"
BARE = "MPI plugin types are...\n\tnone\n\tcray_shasta\n"
REFUSED = "srun: fatal: Could not establish a configuration source\n"


@pytest.mark.parametrize(
    ("data", "kinds"),
    [
        (DEBIAN_12, ("pmix", "none", "cray_shasta", "pmi2")),
        (f"srun: a warning\n{SLURM_20}", ("cray_shasta", "pmi2", "none")),
        (BARE, ("none", "cray_shasta")),
        (REFUSED, ()),
        ("", ()),
    ],
    ids=["22.05", "20.11", "without PMI", "no configuration", "nothing"],
)
def test_what_srun_lists_is_read(data: str, kinds: tuple[str, ...]) -> None:
    assert listed(data) == kinds


@pytest.mark.parametrize(
    ("options", "site", "data", "kind"),
    [
        ("", "none", DEBIAN_12, "pmix"),
        ("", "none", SLURM_20, "pmi2"),
        ("", "none", BARE, "none"),
        ("", "pmi2", DEBIAN_12, "pmi2"),
        ("--account=ops", "none", DEBIAN_12, "pmix"),
        ("--mpi=pmi2", "pmix", DEBIAN_12, "pmi2"),
        ("--account=ops --mpi pmi2", "none", DEBIAN_12, "pmi2"),
        ("--mpi=none --mpi=pmix_v4", "none", DEBIAN_12, "pmix_v4"),
    ],
)
def test_the_best_is_chosen_unless_the_site_or_a_person_says_another(
    options: str, site: str, data: str, kind: str
) -> None:
    assert chosen(options.split(), site, listed(data)) == kind


ALIKE = "".join(
    f"srun: error: Task launch for StepId=1.0 failed on node {name}: Unspecified error\n" for name in ("n1", "n2")
)
HERE = "srun: error:  mpi/pmix_v4: init: (null) [0]: mpi_pmix.c:195: pmi/pmix: can not load PMIx library\n"


@pytest.mark.parametrize(
    ("used", "own", "is_so"),
    [
        ("pmix", ALIKE, True),
        ("pmix_v4", HERE, True),
        ("pmi2", ALIKE, False),
        ("pmix", ALIKE.replace("n2", "n3"), False),  # a fault of one node
        ("pmix", ALIKE.replace("Unspecified error", "Communication connection failure"), False),
        ("pmix", "", False),
    ],
)
def test_pmix_lacks_its_library_where_srun_says_so_or_no_node_can_start(used: str, own: str, is_so: bool) -> None:
    assert is_without_library(used, own, ["n1", "n2"]) is is_so


def test_the_sites_own_choice_is_in_slurms_configuration() -> None:
    assert default("MinJobAge = 300 sec\nMpiDefault              = pmix\nMpiParams = (null)\n") == "pmix"
    assert default("MpiDefault              = none\n") == "none"
    assert default("MpiDefault              = (null)\n") == "none", "as Slurm 24.11 has it"
    assert default("slurm_load_ctl_conf error") == "none"


@pytest.mark.parametrize(
    ("used", "data", "message"),
    [
        ("none", DEBIAN_12, "offered them no PMI (--mpi=none); expected --srun-options=--mpi=pmix"),
        ("none", BARE, "Slurm has no PMI for them (srun --mpi=list: none, cray_shasta); expected its PMIx plugin"),
        ("pmix", DEBIAN_12, "offered them pmix; expected an MPI that speaks it, or --srun-options=--mpi=pmi2"),
        ("pmi2", SLURM_20, "offered them pmi2; expected an MPI that speaks it, or --launcher mpirun"),
    ],
)
def test_ranks_that_did_not_find_each_other_get_another_way(used: str, data: str, message: str) -> None:
    assert message in advice(used, listed(data))
