"""Web applications, each served as its reader would serve it: several processes, and a manager at a module's top."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BOUND = 60
QUIETLY = ("--no-control-socket",)
"""Leave the home directory of the user alone."""

pytestmark = pytest.mark.processes


@contextmanager
def running(module, *arguments, cwd, says, **environment):
    """A Python module as a process until the test ends; yields it and what matched in the line it says when it is up."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | environment,
        start_new_session=True,
    )  # fmt: skip
    lines = []
    up = threading.Event()

    def read():
        for line in process.stdout:
            lines.append(line)
            if re.search(says, line):
                up.set()
        up.set()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        assert up.wait(BOUND)
        found = [match for line in lines if (match := re.search(says, line))]
        assert found, "".join(lines)
        yield process, found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND) in {0, -signal.SIGTERM}, "".join(lines)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        reader.join(BOUND)
        process.stdout.close()


def ask(url, body=None, method=None):
    """The status and the JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=BOUND) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def listening(port):
    """Wait until connections are accepted: uvicorn's processes say that they are up a moment before."""
    until = time.monotonic() + BOUND
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), BOUND).close()
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.01)
        else:
            return


def free_port():
    """A port that nothing listens at; uvicorn with several processes does not say which one it chose."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def several(call):
    """Repeat a request until two processes have answered; what each call gave."""
    answers, until = [], time.monotonic() + BOUND
    while len({answer["process"] for answer in answers}) < 2:
        assert time.monotonic() < until, answers
        answers.append(call(len(answers)))
    return answers


def test_two_processes_of_uvicorn_share_the_manager_of_a_service(tmp_path):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    place, state, port = EXAMPLES / "09_web_processes", str(tmp_path / "state"), free_port()
    served = ("web:app", "--workers", "2", "--port", str(port))
    with (
        running("actorproc", "run", "orders", "--path", state, "--workers", "1", cwd=place, says="serves"),
        running("uvicorn", *served, cwd=place, says="startup complete", STATE=state),
    ):
        listening(port)
        url = f"http://127.0.0.1:{port}"
        orders = several(lambda n: ask(f"{url}/orders", {"id": f"o-{n}", "item": "book"})[1])
        for order in orders:
            assert ask(f"{url}/orders/{order['id']}/payment", {"payer": "Ada"}) == (202, {"taken": True})
        for order in orders:
            assert ask(f"{url}/orders/{order['id']}/result") == (200, "book shipped to Ada")
        assert ask(f"{url}/orders/none/payment", {"payer": "Ada"})[0] == 404


@pytest.mark.parametrize("options", [(), ("--preload",)])
def test_django_under_gunicorn_submits_from_two_processes(tmp_path, options):
    pytest.importorskip("django")
    pytest.importorskip("gunicorn")
    place, folder = EXAMPLES / "10_django", {"SHOP_DIRECTORY": str(tmp_path)}
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--run-syncdb", "-v", "0"], cwd=place, env=os.environ | folder,
        check=True, timeout=BOUND,
    )  # fmt: skip
    with (
        running("actorproc", "run", "shop.service", cwd=place, says="serves", **folder),
        running(
            "gunicorn", *QUIETLY, "-w", "2", "-b", "127.0.0.1:0", *options, "shop.wsgi", cwd=place,
            says=r"Listening at: (http://\S+)", **folder,
        ) as (_, address),
    ):  # fmt: skip
        url = address[1]
        orders = several(lambda n: ask(f"{url}/orders/lamp-{n}", method="POST")[1])
        for number, order in enumerate(orders):
            until = time.monotonic() + BOUND
            while (found := ask(f"{url}/orders/{order['order']}/state")[1])["procedure"] != "SUCCESS":
                assert time.monotonic() < until, found
            assert found == {"item": f"lamp-{number}", "state": "shipped", "procedure": "SUCCESS"}


# ------------------------------------------------------------ one connection for all processes
SERVERS = {
    "gunicorn": ("gunicorn", (*QUIETLY, "-w", "2", "-b", "127.0.0.1:{port}", "web:wsgi"), r"Listening at"),
    "gunicorn, preloaded": (
        "gunicorn",
        (*QUIETLY, "-w", "2", "--preload", "-b", "127.0.0.1:{port}", "web:wsgi"),
        r"Listening at",
    ),
    "uvicorn": ("uvicorn", ("web:app", "--workers", "2", "--port", "{port}"), "startup complete"),
}


@pytest.mark.parametrize("server", SERVERS)
def test_processes_of_a_web_server_share_one_connection_of_a_module(tmp_path, server):
    module, arguments, says = SERVERS[server]
    pytest.importorskip(module)
    pytest.importorskip("fastapi")
    port = free_port()
    arguments = [argument.format(port=port) for argument in arguments]
    state = str(tmp_path / "state")
    with running(module, *arguments, cwd=EXAMPLES / "13_connected", says=says, STATE=state):
        listening(port)
        answers = several(lambda n: ask(f"http://127.0.0.1:{port}/orders/book-{n}", method="POST")[1])
        assert [answer["says"] for answer in answers] == [f"book-{n} shipped" for n in range(len(answers))]
        leaders = {answer["process"] for answer in answers if answer["role"] == "leading"}
        assert len(leaders) == 1
        os.kill(leaders.pop(), signal.SIGKILL)  # its server starts another process
        for n in range(5):
            assert _asked_again(f"http://127.0.0.1:{port}/orders/again-{n}")["says"] == f"again-{n} shipped"


def _asked_again(url):
    """The answer; the connection that the killed process had taken is lost, and is made again."""
    until = time.monotonic() + BOUND
    while True:
        try:
            return ask(url, method="POST")[1]
        except OSError:
            assert time.monotonic() < until


# ------------------------------------------------------------ a manager at the top of the application's module
ON_TOP = """\
from fastapi import FastAPI
from actorproc import ProcedureExecutor, ProcedureManager, Saga, step

class Report(Saga):
    numbers: list[int]
    @step
    def order(self, ctx): return sorted(self.numbers)

def total(numbers): return sum(numbers)

app = FastAPI()
manager = ProcedureManager("state", workers=1).start()
pool = ProcedureExecutor("calls", max_workers=1)

@app.post("/reports")
def report(numbers: list[int]):
    return {"ordered": manager.run(Report(numbers), timeout=60), "total": pool.submit(total, numbers).result(60)}

@app.on_event("shutdown")
def leave():
    pool.shutdown()
    manager.stop()
"""
WSGI = """\
import json
from actorproc import ProcedureManager, procedure

@procedure
def double(ctx, number: int): return 2 * number

manager = ProcedureManager("state", workers=1).start()

def app(environ, start_response):
    answer = manager.run(double(4), timeout=60)
    start_response("200 OK", [("content-type", "application/json")])
    return [json.dumps(answer).encode()]
"""


def test_a_manager_at_the_top_of_an_application_works_under_uvicorn(tmp_path):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    (tmp_path / "app.py").write_text(ON_TOP)
    with running("uvicorn", "app:app", "--port", "0", cwd=tmp_path, says=r"running on (http://\S+)") as (_, address):
        assert ask(f"{address[1]}/reports", [3, 1, 2]) == (200, {"ordered": [1, 2, 3], "total": 6})


def test_a_manager_at_the_top_of_an_application_works_under_gunicorn(tmp_path):
    pytest.importorskip("gunicorn")
    (tmp_path / "app.py").write_text(WSGI)
    with running(
        "gunicorn", *QUIETLY, "-b", "127.0.0.1:0", "app:app", cwd=tmp_path, says=r"Listening at: (http://\S+)"
    ) as (
        _,
        address,
    ):
        assert ask(address[1]) == (200, 8)


def test_the_second_process_is_told_of_the_client(tmp_path):
    pytest.importorskip("gunicorn")
    (tmp_path / "app.py").write_text(WSGI)

    ended = subprocess.run(
        [sys.executable, "-m", "gunicorn", *QUIETLY, "-w", "2", "-b", "127.0.0.1:0", "app:app"], cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=BOUND, check=False,
    )  # fmt: skip

    assert ended.returncode != 0
    assert "reach its manager through ProcedureClient(" in ended.stderr


def test_a_manager_beside_a_django_model_works(tmp_path):
    pytest.importorskip("django")
    shutil.copytree(EXAMPLES / "10_django", tmp_path, dirs_exist_ok=True)
    with (tmp_path / "shop" / "models.py").open("a") as models:
        models.write(
            "\n\nimport django\n"
            "from actorproc import ProcedureManager\n"
            "manager = ProcedureManager('state', workers=1, environment=django.setup).start()\n"
        )
    program = (
        "import os\n"
        "os.environ['DJANGO_SETTINGS_MODULE'] = 'shop.settings'\n"
        "import django; django.setup()\n"
        "from django.core.management import call_command\n"
        "call_command('migrate', run_syncdb=True, verbosity=0)\n"
        "from shop.models import Fulfil, Order, manager\n"
        "print(manager.run(Fulfil(Order.objects.create(item='lamp').pk), timeout=60), Order.objects.get().state)\n"
        "manager.stop()\n"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        capture_output=True, text=True, timeout=BOUND, check=False,
    )  # fmt: skip

    assert (ran.stdout, ran.returncode) == ("lamp shipped\n", 0), ran.stderr
