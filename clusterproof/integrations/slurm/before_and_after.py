"""Prolog and epilog: around each job. They ask Slurm nothing; what they answer is what to drain for, or nothing."""

from __future__ import annotations

from clusterproof.integrations.slurm.basis import basis_of
from clusterproof.integrations.slurm.call import VERDICT, Call
from clusterproof.integrations.slurm.drains import Drain
from clusterproof.integrations.slurm.moment import boot_id, since_boot_s
from clusterproof.integrations.slurm.served import leave_for_scripts
from clusterproof.integrations.slurm.verdict import Cursor, Run, cursor_of, draining, reaches, run_of
from clusterproof.plugins.core.record import replace

EPILOG = "epilog"  # the record of the last run after a job
LEISURE_S = 1.5  # what has to be left of the deadline for something that makes only later calls quicker


def prolog(call: Call) -> Drain | None:
    """Before a job: a verdict that is fresh, else one of a run."""
    came = call.came
    run = _fresh(call, came)
    if run is None or call.turn.lock is not None:
        with call.alone():
            run = run or _fresh(call, came) or _checked(call, came)
            leave_for_scripts(call, run, VERDICT, _of_job(run))
    if run.at < came:
        call.log(f"the verdict of {came - run.at:.0f} s ago")
    found = draining(run, call.job, late_drains=call.settings.at_deadline == "drain")
    if call.job.id:
        call.state.remove_old()
        call.remember(call.job.record, _of_job(run))
    return call.drain(found, run.begins, run.ends) if found else None


def epilog(call: Call) -> Drain | None:
    """After a job: what it left, and what the kernel has logged since it began. Nothing, where our prolog let none in.

    Of jobs that end at once, those that wait for a run take the verdict of the next, which begins after all have come.
    """
    came = call.came
    data = call.state.read(call.job.record)
    if data.get("is_refused"):
        call.state.forget(call.job.record)
        return None
    begins = cursor_of(data.get("cursor")) or call.cursor
    run = _since(call, came, begins)
    if run is None:
        with call.alone():
            run = _since(call, came, begins)
            if run is None:
                run = _run("epilog", call, begins)
                call.remember(EPILOG, run.to_json())
                leave_for_scripts(call, run, EPILOG, data)
                call.advance(run.ends)
                if run.findings:
                    call.state.forget(VERDICT)  # the next job must not get the verdict on what the node is like now
    if run.is_blind_to_jobs:
        call.leave_to_health_check()
    else:
        call.state.forget(call.job.record)
    found = draining(run, call.job, late_drains=call.settings.at_deadline == "drain", is_epilog=True)
    return call.drain(found, begins, run.ends) if found else None


def _since(call: Call, came: float, begins: Cursor | None) -> Run | None:
    """The last run after a job, where it began after this call, and looked at all of the log since that cursor."""
    run = run_of(call.state.read(EPILOG))
    if run is None or run.boot_id != boot_id() or run.basis != basis_of(call.settings):
        return None
    return run if run.began >= came and reaches(run.begins, begins) else None


def _checked(call: Call, came: float) -> Run:
    """The verdict of a run. What made the last one fail is evaluated again, by the current rules, while fresh."""
    last = run_of(call.state.read(VERDICT))
    is_held = last and last.boot_id == boot_id() and last.of("fail") and came - last.at < call.settings.reuse_s
    run = _run("prolog", call, last.begins if last and is_held else call.cursor)
    call.remember(VERDICT, run.to_json())
    call.advance(run.ends)
    return run


def _of_job(run: Run) -> dict[str, object]:
    """What is kept of a job that a run has let in, until its epilog."""
    return {"cursor": run.ends, "boot_id": run.boot_id, "at": run.at}


def _run(occasion: str, call: Call, begins: Cursor | None) -> Run:
    from clusterproof.integrations.slurm.checking import check  # a verdict that is fresh costs none of this
    from clusterproof.integrations.slurm.nvml_part import keep_part, part_of

    basis = basis_of(call.settings)  # before the policy is read: what changes from now on is not of this run
    nvml = part_of(call.state)
    run = check((occasion,), call.settings, call.left_s, begins, call.log, nvml=nvml)
    call.log_run(run)
    if not nvml and call.left_s > LEISURE_S:
        keep_part(call.state)
    return replace(run, is_late=call.turn.is_late, basis=basis)


def _fresh(call: Call, came: float) -> Run | None:
    """The last run's verdict, where it was formed while this call waited, or is young and finds no fault.

    One that rests on other settings, another policy or another version of clusterproof is none.
    """
    run = run_of(call.state.read(VERDICT))
    if run is None or run.boot_id != boot_id() or run.at > since_boot_s() or run.basis != basis_of(call.settings):
        return None
    is_young = came - run.at < call.settings.reuse_s and run.is_reusable
    return run if run.at >= came or is_young else None
