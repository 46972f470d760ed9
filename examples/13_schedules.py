"""A report that is made again and again, also over restarts of the program. Run it twice.

python 13_schedules.py
"""

from dataclasses import dataclass
from datetime import timedelta

from actorproc import Calendar, Procedure, ProcedureManager, Status


@dataclass
class Report(Procedure):
    table: str

    def execute(self, ctx):
        return Status.done(f"report on {self.table}, due at {ctx.scheduled_at:%H:%M:%S}")


with ProcedureManager("state", workers=1, procedures=[Report]) as manager:
    # Declared at each start. No process is needed between two instants, and none is fired twice.
    manager.schedule(timedelta(seconds=1), Report("visits"), id="each-second")
    manager.schedule(Calendar("02:00"), Report("orders"), id="nightly", timezone="UTC", overlap="queue")

    reports = 0
    for change in manager.watch():
        if change.id.startswith("each-second@") and change.state == "SUCCESS":
            print(manager.get(change.id).result())
            reports += 1
            if reports == 2:
                break
    for info in manager.schedules():
        print(info.id, "has fired" if info.firings else "has not fired yet")
