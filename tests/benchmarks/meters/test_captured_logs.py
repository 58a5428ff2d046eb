"""Captured logs of nccl-tests and nccom-test: every one can be read."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.benchmarks.meters import MeterSettings, Output, nccl_tests, nccom_test
from clusterproof.plugins.evidence.pairs import Reading
from tests.builders.samples import FOLDER, of_topic

GIB = 2**30


def nccl(text: str, end: int | None = 0, **settings: Any) -> Reading:
    return nccl_tests.read(MeterSettings(**settings), (Output(text, end),))


def nccom(text: str, end: int | None = 0) -> Reading:
    return nccom_test.read(MeterSettings(), (Output(text, end),))


# Sample: busbw of the largest size in GB/s, that size, correct, network.
NCCL: dict[str, tuple[float | None, int, bool | None, str]] = {
    "awsome-batch": (483.05, 16 * GIB, True, ""),
    "awsome-p5-k8s": (437.79, 2 * GIB, True, ""),
    "awsome-p5-srun-prefixed": (487.09, 16 * GIB, True, ""),
    "awsome-topology-aware": (369.42, 16 * GIB, True, ""),
    "azure-bad-minbytes": (None, 0, None, ""),
    "azure-mpi-bad-gpu-count": (None, 0, None, ""),
    "azure-mpi-ppr-rejected": (None, 0, None, ""),
    "cscs-gh200-2.18": (22.86, 2**27, True, ""),
    "cscs-gh200-ofi-fast": (122.57, 2**27, True, ""),
    "cscs-gh200-socket-slow": (5.41, 2**27, True, ""),
    "dcgm-mock-fail-oob": (None, 2**25, False, ""),
    "deepops-netop": (188.53, 4 * GIB, True, ""),
    "deepops-roce": (22.85, 2 * GIB, True, ""),
    "deepops-slurm": (191.05, 4 * GIB, True, ""),
    "dstack-a3mega": (188.54, 8 * GIB, None, ""),
    "dstack-a4-b200": (679.54, 8 * GIB, True, ""),
    "dstack-nebius": (467.54, 8 * GIB, True, ""),
    "eks-16gpu-tail-efa": (438.85, 2 * GIB, True, ""),
    "eks-2gpu-efa": (2.82, GIB, True, "efa"),
    "eks-g4dn-2gpu-efa-ncclinfo": (3.11, GIB, True, "efa, 1 device"),
    "eks-p4d-16gpu-efa-full-ncclinfo": (43.72, 4 * GIB, True, "efa"),
    "gcm-a100-pairwise": (181.39, GIB, True, ""),
    "gcm-a100-single": (231.7, GIB, True, ""),
    "gcm-not-enough-slots": (None, 0, None, ""),
    "gke-a3mega-allgather": (188.73, 8 * GIB, True, ""),
    "gke-a3u-1gpu-4w-a": (None, 0, None, ""),
    "gke-b200-b": (None, 0, None, ""),
    "gke-mpi-operator-openib-warnings": (31.88, 8 * GIB, True, ""),
    "gke-slurm": (None, 8 * GIB, True, ""),
    "superbench-allgather.log": (223.39, 8 * GIB, None, ""),
    "superbench-allreduce.log": (235.03, 8 * GIB, None, ""),
    "superbench-alltoall.log": (224.31, 8 * GIB, None, ""),
}
# For the largest size, in GB/s; the first and the last log print GiB/s.
NCCOM: dict[str, tuple[float, int, bool | None]] = {
    "neuron-sdk-01-L28": (43.690555, 2**25, None),
    "neuron-sdk-02-L587": (43.690555, 2**25, None),
    "neuron-sdk-04-L619": (56.725781, GIB, None),
    "neuron-sdk-07-L678": (21.93, 2**19, True),
    "neuron-sdk-08-L690": (30.92, 2**19, None),
    "neuron-sdk-09-L702": (21.98, 2**19, True),
    "neuron-sdk-10-L752": (103.89, 2**29, None),
    "neuron-sdk-12-L794": (16.71, 2**20, True),
    "neuron-sdk-13-L831": (50.562502, GIB, None),
}


@pytest.mark.parametrize("capture", of_topic("nccl-tests"))
def test_every_captured_log_of_nccl_tests_is_read(capture: Any) -> None:
    read = nccl(capture.text)
    figures = (read.busbw_gb_per_s, read.size_bytes, read.is_correct, read.network)
    assert figures == NCCL[capture.name.removesuffix(".txt")]
    assert bool(read.problem) == (read.busbw_gb_per_s is None)


@pytest.mark.parametrize("capture", of_topic("nccom-test"))
def test_every_captured_log_of_nccom_test_is_read(capture: Any) -> None:
    read = nccom(capture.text)
    assert (read.busbw_gb_per_s, read.size_bytes, read.is_correct) == NCCOM[capture.name.removesuffix(".txt")]
    assert not read.problem


@pytest.mark.parametrize(("folder", "expected"), [("nccl-tests", NCCL), ("nccom-test", NCCOM)])
def test_no_sample_of_the_folders_is_left_out(folder: str, expected: dict[str, Any]) -> None:
    if not FOLDER.is_dir():
        pytest.skip(f"no captures: {FOLDER} is absent")
    assert {file.name.removesuffix(".txt") for file in (FOLDER / folder).iterdir()} == set(expected)
