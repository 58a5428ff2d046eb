"""What a run learns: that its loss is a number."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, fail_if
from clusterproof.plugins.suite.routing import evidence
from clusterproof.plugins.training_run.run import TrainingRun

pytestmark = [mark.run]


@mark.hyperpod_performance_debugger
@evidence("grep -iE 'loss: *(nan|inf)' train.log")
def test_loss_finite(run: TrainingRun) -> None:
    """Loss and norm of the gradients.

    A loss that is nan or inf at the end of the log stays so: the run learns nothing any more. One that is a number
    again later was skipped or begun again from a checkpoint. The norm of the gradients alone may be inf in single
    steps, while a loss scale adapts: from three lines at the end on it counts. How far a loss may rise is left open.

    Remedy (investigate): Go back to a checkpoint from before that step, with a lower learning rate, clipped gradients
    and the batch left out. If the same step goes well on other nodes, a GPU computes wrongly: run dcgmi diag -r 3.
    """
    found = run.losses
    for rank, one in found.never_again:
        seen = f"the loss is {one.word} from step {one.since} on, in {one.at_end} of {one.lines} lines"
        fail_if(one.at_end, f"rank {rank}: {seen}; expected a number")
    for rank, one in found.for_a_while:
        seen = f"the loss is {one.word} in {one.wrong} of {one.lines} lines, first at step {one.first_wrong}"
        concern_if(one.wrong, f"rank {rank}: {seen}, and a number again later; expected one in each")
    for rank, one in found.without_norm:
        seen = f"the norm of the gradients is {one.word} from step {one.since} on"
        concern_if(one.at_end, f"rank {rank}: {seen}; expected a number")
