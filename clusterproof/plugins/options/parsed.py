"""The values that the command line gives: of all options of the suite, and of those of pytest that it reads.

Written by `scripts/generate` out of the tables of options.
"""

from __future__ import annotations

from typing import Protocol


class Options(Protocol):
    """What `config.option` holds; None: not given."""

    # which nodes
    cluster: str | None
    nodes: str | None
    exclude: str | None
    instance_type: str | None
    expect: str | None

    # which training run
    run: list[str] | None

    # how to reach them
    fanout: int
    connect_timeout: float
    answer_timeout: float | None
    accept_new_host_keys: bool

    # Slurm
    via: str | None
    slurm_wait: float | None
    srun_options: str | None
    include_drained: bool

    # Kubernetes
    k8s_namespace: str | None
    k8s_image: str | None
    k8s_gate: str | None
    k8s_max_tainted: str | None
    k8s_startup_taint: str | None
    k8s_every: float | None
    k8s_evidence: str | None
    k8s_keep: str | None
    k8s_perf_image: str | None

    # AWS
    region: str | None
    profile: str | None
    ssm_rate: float | None
    ssm_output: str | None
    fsx_window: str

    # the probe
    probe_timeout: float
    host_root: str
    in_container: str
    sudo: bool

    # verdicts
    policy: str | None
    incomplete: str
    concerns: str
    since: str
    log_cursor: str

    # records
    report: str | None
    no_report: bool
    report_url: str | None
    keep: int | None
    junit_cases: str
    results: str | None
    record: str | None
    bundle: str | None
    redact: bool

    # history
    history: str | None
    since_last: bool

    # notifications
    notify: list[str] | None
    cloudwatch: str | None

    # the catalogue
    refresh_catalog: str | None

    # load, where -m names perf
    load_timeout: str
    dcgm_level: int
    dcgm_parameters: str
    load_path: str
    exact_s: float
    stress_s: int
    torch_python: str
    fs_bandwidth: str
    fs_size: int
    fs_at_once: int

    # pairs of nodes, where -m names perf
    pairs: str
    groups: str
    pairs_at_once: int | None
    pairs_budget: str
    pairs_seed: int | None
    pair_timeout: float
    resume: str | None
    meter: str | None
    meter_program: str
    meter_options: str
    meter_env: str
    meter_size: str
    collective: str
    ranks_per_node: int | None
    launcher: str | None
    mpirun_options: str
    baseline: str | None
    save_baseline: str | None

    # pytest's own
    collectonly: bool
    keyword: str
    markexpr: str
