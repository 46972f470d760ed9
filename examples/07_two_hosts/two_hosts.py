"""Two hosts on one database: the manager that leads is killed, and nothing is lost.

    python two_hosts.py

It starts a private PostgreSQL server, and ``actorproc run deliveries`` twice, as two machines would. It submits
deliveries all the time, and kills the leader twice. On real machines the two commands are all that is needed.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from actorproc import Config, ProcedureClient
from actorproc.store.home import home_of
from actorproc.testing.database_server import DatabaseServer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from deliveries import Delivery  # noqa: E402 - it is beside this file


def host(url):
    """One host: a service that leads, or waits for the lead."""
    command = [sys.executable, "-m", "actorproc", "run", "deliveries", "--path", url, "--workers", "2"]
    return subprocess.Popen(command, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def leader_of(url):
    """The process id of the leader, once there is one."""
    while True:
        leader = home_of(url).leader() if home_of(url).exists() else None
        if leader is not None and leader.leads:
            return int(leader.owner.split()[1]), leader.epoch
        time.sleep(0.05)


with DatabaseServer(fsync=True) as server:
    url = server.url("deliveries")
    hosts = [host(url), host(url)]
    try:
        leader_of(url)
        with ProcedureClient(url, patience=60, config=Config()) as client:
            handles = []
            for turn in range(3):
                handles += [client.submit(Delivery(parcel=number)) for number in range(20 * turn, 20 * turn + 20)]
                if turn < 2:
                    pid, epoch = leader_of(url)
                    os.kill(pid, signal.SIGKILL)
                    print(f"the leader, process {pid} with epoch {epoch}, was killed")
                    next(one for one in hosts if one.pid == pid).wait()
                    hosts.append(host(url))
            outputs = [handle.result(60) for handle in handles]
        print(f"{len(set(outputs))} of {len(handles)} parcels delivered, by leaders up to epoch {leader_of(url)[1]}")
    finally:
        for one in hosts:
            one.kill()
            one.wait()
