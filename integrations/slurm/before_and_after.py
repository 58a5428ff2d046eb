"""Prolog and epilog: around each job. They ask Slurm nothing; what they answer is the reason to drain, or none."""

from __future__ import annotations

from clusterproof.integrations.slurm.call import Call
from clusterproof.integrations.slurm.checking import check
from clusterproof.integrations.slurm.state import boot_id, since_boot_s
from clusterproof.integrations.slurm.verdict import Cursor, Run, cursor_of, draining, reaches, reason_of, run_of

Answer = tuple[str, Cursor | None]  # the reason to drain, and from where on the kernel log was judged for it


def prolog(call: Call) -> Answer:
    """Before a job: a verdict that is fresh, else one of a run."""
    came = since_boot_s()
    run = _fresh(call, came)
    if run is None:
        with call.state.locked():
            run = _fresh(call, came) or _checked(call, came)
    else:
        call.log(f"the verdict of {came - run.at:.0f} s ago")
    found = draining(run, call.job, late_drains=call.settings.at_deadline == "drain")
    if call.job.id and not (found and call.settings.drains):
        call.state.sweep()
        call.remember(f"jobs/{call.job.id}", {"cursor": run.ends})
    return (reason_of(found), run.begins) if found else ("", None)


def epilog(call: Call) -> Answer:
    """After a job: what it left, and what the kernel has logged since it began.

    Of jobs that end at once, those that wait for a run take the verdict of the next, which begins after all have come.
    """
    came = since_boot_s()
    of_job = f"jobs/{call.job.id}"
    begins = cursor_of(call.state.read(of_job).get("cursor")) or call.cursor
    with call.state.locked():
        run = run_of(call.state.read("epilog"))
        if run is None or run.boot_id != boot_id() or run.began < came or not reaches(run.begins, begins):
            run = check(("epilog",), call.settings, call.left_s, begins)
            call.tell(run)
            call.remember("epilog", run.to_json())
            call.advance(run.ends)
            if run.findings:
                call.state.forget("verdict")  # what the node is like now is not what the next job is to be told
    call.state.forget(of_job)
    found = draining(run, call.job, late_drains=call.settings.at_deadline == "drain", is_epilog=True)
    return (reason_of(found, call.job), begins) if found else ("", None)


def _checked(call: Call, came: float) -> Run:
    """The verdict of a run. What made the last one fail is judged again for as long as that is fresh."""
    last = run_of(call.state.read("verdict"))
    is_held = last and last.boot_id == boot_id() and last.of("fail") and came - last.at < call.settings.reuse_s
    run = check(("prolog",), call.settings, call.left_s, last.begins if last and is_held else call.cursor)
    call.tell(run)
    call.remember("verdict", run.to_json())
    call.advance(run.ends)
    return run


def _fresh(call: Call, came: float) -> Run | None:
    """The last run's verdict, where it was formed while this call waited, or is young and finds no fault."""
    run = run_of(call.state.read("verdict"))
    if run is None or run.boot_id != boot_id() or run.at > since_boot_s():
        return None
    is_young = came - run.at < call.settings.reuse_s and run.is_reusable
    return run if run.at >= came or is_young else None
