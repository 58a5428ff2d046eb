"""What a cold prolog starts on a node: the part of its cost that needs no clock."""

from __future__ import annotations

from tests.integrations.slurm.on_node import node
from tests.integrations.slurm.scripts import SCRIPTS
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_p5

NEXT = "$(sh -c 'echo $$')"  # the next process id
COUNTED = f"before={NEXT}; {SCRIPTS}/clusterproof-prolog; after={NEXT}; echo $((after - before))"
# The script with its watchdog, Python and its deadline, its probe, 7 collector processes, the programs that these run,
# and one for the file systems that are touched.
MAX_STARTED = 25
RUNS = 10  # on a busy machine, late collectors are started again alone


@needs_nodes
def test_a_cold_prolog_starts_no_more_processes_and_threads_than_these() -> None:
    with node(healthy_p5(), 'mode = "drain"\nreuse_s = 0\ndeadline_s = 8\n', is_first_run=True) as running:
        started = (int(running.run(["sh", "-c", COUNTED], env={"SLURM_JOB_ID": "42"}).stdout) for _ in range(RUNS))
        assert any(count <= MAX_STARTED for count in started)
