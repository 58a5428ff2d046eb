"""What a run leaves for the scripts themselves: the calls that it serves start no Python.

In /run/clusterproof, a file for each occasion, in lines as `read` has them: the boot; the Python that has run; the
deadline, the moments (in hundredths of a second since boot) that the verdict is of and is fresh until, and whether it
found nothing to drain for; what the record of a job is; and each file that the verdict rests on as
`stat -c '%i %s %.9Z %n'` shows it, or dashes before its name where there is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

from clusterproof.integrations.slurm.basis import files_of
from clusterproof.integrations.slurm.call import Call
from clusterproof.integrations.slurm.settings import FILE
from clusterproof.integrations.slurm.verdict import NO_JOB, Run, draining

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from collections.abc import Mapping

DAY_S = 24 * 3600  # rules of a policy end with one


def leave_for_scripts(call: Call, run: Run, name: str, of_job: Mapping[str, object]) -> None:
    """Leave it, once a run's record is written; `of_job` is what a job keeps that it serves, or has kept."""
    is_epilog = call.occasion == "epilog"
    at = run.began if is_epilog else run.at
    fresh_s = min(call.settings.reuse_s, _left_of_day_s()) if run.is_reusable and not is_epilog else 0
    found = draining(run, NO_JOB, late_drains=call.settings.at_deadline == "drain", is_epilog=is_epilog)
    is_fine = "no" if found or not of_job or (is_epilog and run.is_blind_to_jobs) else "yes"
    lines = [
        run.boot_id,
        sys.executable,
        f"{call.settings.deadline_s} {int(at * 100)} {int((at + fresh_s) * 100)} {is_fine}",
        json.dumps(of_job),
        *map(_shown, (*files_of(call.settings), FILE, f"{call.state.place_of(name)}/{name}.json")),
    ]
    call.state.leave(call.occasion, "".join(f"{line}\n" for line in lines))


def _shown(file: str) -> str:
    with contextlib.suppress(OSError):
        data = os.stat(file)  # noqa: PTH116 - pathlib costs an import before each job
        seconds, nanoseconds = divmod(data.st_ctime_ns, 10**9)
        return f"{data.st_ino} {data.st_size} {seconds}.{nanoseconds:09d} {file}"
    return f"- - - {file}"


def _left_of_day_s() -> int:
    now = time.localtime()
    return DAY_S - now.tm_hour * 3600 - now.tm_min * 60 - now.tm_sec
