"""A manager or an executor at the top of a module: it works in the program, and stays shut where others import it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.embedding.conftest import environment

pytestmark = pytest.mark.processes

SHOP = """\
from actorproc import ProcedureManager, Saga, procedure, step
class Order(Saga):
    item: str
    @step
    def ship(self, ctx): return f"{self.item} shipped"
@procedure
def add(ctx, a: int, b: int): return a + b
"""
STARTED = 'manager = ProcedureManager("state", workers=1).start()\n'


@pytest.fixture
def files(tmp_path):
    """Write modules into the directory of the program."""

    def write(**sources):
        for name, text in sources.items():
            place = tmp_path.joinpath(*name.split("__in__")).with_suffix(".py")
            place.parent.mkdir(exist_ok=True)
            place.write_text(textwrap.dedent(text))

    return write


LAYOUTS = {
    "one module": ({"shop": SHOP + STARTED}, "shop"),
    "made by a function": (
        {"shop": SHOP + "def make(): return ProcedureManager('state', workers=1).start()\nmanager = make()\n"},
        "shop",
    ),
    "in a with": ({"shop": SHOP + STARTED + "with manager: pass\nmanager.start()\n"}, "shop"),
    "made in one, started in another": (
        {
            "engine": "from actorproc import ProcedureManager\nmanager = ProcedureManager('state', workers=1)\n",
            "shop": SHOP + "from engine import manager\nmanager.start()\n",
        },
        "shop",
    ),
    "a chain": (
        {"engine": "from actorproc import ProcedureManager\n" + STARTED, "between": "from engine import manager\n",
         "shop": SHOP + "from between import manager\n"},
        "shop",
    ),
    "a package's __init__": (
        {"pkg__in____init__": "from actorproc import ProcedureManager\n" + STARTED + "from pkg.shop import Order, add\n",
         "pkg__in__shop": SHOP},
        "pkg",
    ),
    "registered by its decorator": (
        {"shop": SHOP + "manager = ProcedureManager('state', workers=1, procedures=[Order])\n"
                 "manager.register(add)\nmanager.start()\n"},
        "shop",
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_program_runs_with_a_manager_that_its_module_starts(files, program, layout):
    sources, name = LAYOUTS[layout]
    files(**sources)

    ran = program(
        f"import {name} as shop\n"
        "print(shop.manager.run(shop.Order('book'), timeout=30), shop.manager.run(shop.add(1, 2), timeout=30))\n"
        "print(shop.manager.health().status, len(shop.manager.workers()))\n"
        "shop.manager.stop()\n",
        "-W", "error",
    )  # fmt: skip

    assert (ran.stdout, ran.returncode) == ("book shipped 3\nrunning 1\n", 0), ran.stderr


def test_a_module_that_is_run_as_one_is_imported_by_its_workers(files, tmp_path):
    files(
        shop=SHOP + STARTED + "if __name__ == '__main__':\n    print(manager.run(Order('book')))\n    manager.stop()\n"
    )

    ran = subprocess.run(
        [sys.executable, "-m", "shop"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip

    assert (ran.stdout, ran.returncode) == ("book shipped\n", 0), ran.stderr


INSIDE = """\
import os, sys, tempfile, threading
from actorproc import ProcedureManager, ProcedureExecutor, procedure

def said(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"

@procedure
def uses(ctx):  # imports lazily, in the middle of a step
    import late
    made = [os.path.exists("late-state"), os.path.exists("late-calls")]
    return [
        said(late.manager.list), said(late.manager.start), said(late.manager.__enter__), said(lambda: late.pool.manager),
        said(lambda: late.pool.submit(len, "abc")), said(lambda: late.pool.get("x")), late.manager.health().status, made
    ]

@procedure
def in_threads(ctx):
    found = []
    def look():
        import late
        found.append(said(late.manager.list).partition(":")[0])
    threads = [threading.Thread(target=look) for _ in range(3)]
    [each.start() for each in threads]; [each.join() for each in threads]
    return found

@procedure
def makes_its_own(ctx):
    with ProcedureManager(tempfile.mkdtemp(), workers=1) as manager:
        with ProcedureExecutor(tempfile.mkdtemp(), max_workers=1) as executor:
            text = "from actorproc import ProcedureManager\\nProcedureManager(place, workers=1).start().stop()"
            exec(compile(text, "<text>", "exec"), {"place": tempfile.mkdtemp()})  # a module's code, but not an import
            return manager.health().status, executor.submit(len, "abc").result()

def child(word):
    import late
    return said(late.manager.list)[:60]

@procedure
def children(ctx, how: str):
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context
    with ProcessPoolExecutor(1, mp_context=get_context(how)) as pool:
        return pool.submit(grandchild if how == 'spawn' else child, 1).result()

def grandchild(word):
    from multiprocessing import get_context
    with get_context("spawn").Pool(1) as pool:
        return pool.map(child, [1])[0]

@procedure
def of_a_loader(ctx):
    import importlib.util
    found = []
    for name in ("late", "other"):
        spec = importlib.util.spec_from_file_location(name, "late.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append(said(module.manager.list).partition(":")[0])
    sys.modules["late"] = module
    found.append(said(importlib.reload(__import__("reloaded")).manager.list).partition(":")[0])
    return found

@procedure
def marked(ctx):
    import multiprocessing.process
    return [
        multiprocessing.process.__spec__.loader is multiprocessing.process.__loader__,
        type(multiprocessing.process.__loader__).__name__,
        [type(finder).__name__ for finder in sys.meta_path if "actorproc" in type(finder).__module__],
    ]
"""
LATE = """\
from actorproc import ProcedureExecutor, ProcedureManager
manager = ProcedureManager("late-state", workers=1).start()
pool = ProcedureExecutor("late-calls", max_workers=1)
"""


@pytest.fixture(scope="module")
def inside(tmp_path_factory):
    """What steps of `INSIDE` gave, by their names: one program runs them all."""
    folder = tmp_path_factory.mktemp("inside")
    (folder / "inside.py").write_text(INSIDE)
    (folder / "late.py").write_text(LATE)
    (folder / "reloaded.py").write_text(LATE)
    program = textwrap.dedent("""\
        import inside
        from actorproc import ProcedureManager
        with ProcedureManager("state", workers=1, preload=["late"]) as manager:
            print({
                **{name: manager.run(getattr(inside, name)(), timeout=60)
                   for name in ("uses", "in_threads", "makes_its_own", "of_a_loader", "marked")},
                **{how: manager.run(inside.children(how), timeout=60) for how in ("fork", "spawn", "forkserver")},
            })
    """)
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment(), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return eval(ran.stdout)


def test_using_what_an_import_made_is_an_error_that_says_what_to_do(inside):
    *errors, status, made = inside["uses"]

    assert (status, made) == ("stopped", [False, False])
    for error in errors:
        assert error.startswith("UsageError: the "), error
        assert "imported the module 'late', so it stays shut" in error
        assert "ProcedureClient(" in error
    assert [error.split()[2] for error in errors] == ["manager"] * 3 + ["executor"] * 3


def test_what_a_step_makes_itself_works(inside):
    assert inside["makes_its_own"] == ("running", 3)


@pytest.mark.parametrize(
    ("how", "expected"),
    [("in_threads", ["UsageError"] * 3), ("of_a_loader", ["UsageError"] * 3)],
)
def test_every_way_to_import_counts(inside, how, expected):
    assert inside[how] == expected


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_children_of_a_step_inherit_it(inside, how):
    assert inside[how].startswith("UsageError: the manager on "), inside[how]


def test_the_mark_for_children_leaves_nothing_in_the_way_of_imports(inside):
    assert inside["marked"] == [True, "SourceFileLoader", []]


def test_a_module_that_uses_its_manager_at_its_top_is_named(files, program):
    files(shop=SHOP + STARTED + "manager.submit(add(1, 2), id='nightly')\n")

    ran = program(
        "import shop, time\n"
        "until = time.monotonic() + 60\n"
        "while not (reason := shop.manager.info('nightly').reason) and time.monotonic() < until: time.sleep(0.01)\n"
        "print(reason)\n"
        "shop.manager.stop()\n"
    )

    assert "UsageError: the manager on" in ran.stdout
    assert "the module 'shop'" in ran.stdout


def test_a_program_that_a_step_starts_is_a_program(files, program):
    files(shop=SHOP + STARTED, caller="""
        import subprocess, sys
        from actorproc import procedure
        CODE = "import shop; print(shop.manager.run(shop.add(1, 2), timeout=30)); shop.manager.stop()"
        @procedure
        def call(ctx):
            return subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True).stdout
    """)  # fmt: skip

    ran = program(
        "import caller\n"
        "from actorproc import ProcedureManager\n"
        "with ProcedureManager('other', workers=1) as manager: print(manager.run(caller.call(), timeout=60))\n"
    )

    assert ran.stdout == "3\n\n", ran.stderr


def test_an_engine_actor_of_a_module_stays_shut(files, program):
    files(shop=SHOP + "from actorproc.embedding import EngineActor\nengine = EngineActor.start('state', workers=1)\n")

    ran = program(
        "import shop, pykka\n"
        "print(shop.engine.proxy().submit(shop.Order('book')).get().result(30))\n"
        "pykka.ActorRegistry.stop_all()\n"
    )

    assert (ran.stdout, ran.returncode) == ("book shipped\n", 0), ran.stderr


# ------------------------------------------------------------ executors
def test_an_executor_of_a_module_starts_at_its_first_call(files, program):
    files(
        shop="""
        from actorproc import ProcedureExecutor
        def double(x): return 2 * x
        def nested(x): return POOL.submit(double, x).result()
        POOL = ProcedureExecutor("calls", max_workers=1)
    """
    )

    ran = program(
        "import os, shop\n"
        "print(os.path.exists('calls'), shop.POOL.submit(shop.double, 2).result(30), list(shop.POOL.map(abs, [-1])))\n"
        "print(type(shop.POOL.submit(shop.nested, 1).exception(30)).__name__)\n"
        "shop.POOL.shutdown()\n"
    )

    assert (ran.stdout, ran.returncode) == ("False 4 [1]\nUsageError\n", 0), ran.stderr


def test_an_executor_that_was_made_before_a_fork_starts_in_the_child(files, program):
    files(shop="from actorproc import ProcedureExecutor\nPOOL = ProcedureExecutor('calls', max_workers=1)\n")

    ran = program(
        "import os, shop, sys\n"
        "if (child := os.fork()) == 0:\n"
        "    print(shop.POOL.submit(len, 'abc').result(30), flush=True)\n"
        "    shop.POOL.shutdown()\n"
        "    sys.exit(0)\n"
        "print(os.waitpid(child, 0)[1])\n"
        "print(shop.POOL.submit(len, 'ab').result(30))\n"
        "shop.POOL.shutdown()\n"
    )

    assert (ran.stdout, ran.returncode) == ("3\n0\n2\n", 0), ran.stderr


# ------------------------------------------------------------ commands and pytest
def test_run_takes_over_what_the_module_started(files, tmp_path):
    files(shop=SHOP + STARTED.replace("manager =", "engine ="))
    service = subprocess.Popen(
        [sys.executable, "-m", "actorproc", "run", "shop"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert any("serves" in line for line in service.stderr)
        again = subprocess.run(
            [sys.executable, "-m", "actorproc", "run", "shop"], cwd=tmp_path, env=environment(), capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert again.returncode == 1
        assert re.search(rf"cannot start: .* in use by process {service.pid}; reach its manager through", again.stderr)
        submitted = subprocess.run(
            [sys.executable, "-m", "actorproc", "submit", "shop:Order", "item=book", "--wait"], cwd=tmp_path,
            env=environment(), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (submitted.returncode, "book shipped" in submitted.stdout) == (0, True), submitted.stderr
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
    finally:
        service.kill()
        service.communicate()


def test_submitting_an_object_of_a_module_starts_nothing(files, tmp_path):
    files(shop=SHOP + STARTED)

    ran = subprocess.run(
        [sys.executable, "-m", "actorproc", "submit", "shop:Order", "item=book", "--dry-run"], cwd=tmp_path,
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr
    assert not (tmp_path / "state").exists()


def test_of_several_managers_one_is_named(files, tmp_path):
    files(
        shop=SHOP
        + "a, b = ProcedureManager('one', workers=1).start(), ProcedureManager('two', workers=1).start()\nalso = b\n"
    )

    ran = subprocess.run(
        [sys.executable, "-m", "actorproc", "run", "shop"], cwd=tmp_path, env=environment(), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip

    assert ran.returncode == 2
    assert ran.stderr == "shop starts several managers: a, b; name one as shop:a\n"


TESTS = """\
import os

from shop import Order, manager, pool

def test_nothing_was_started():
    assert not os.path.exists("state")

def test_it_starts_when_it_is_used():
    assert manager.run(Order("book"), timeout=60) == "book shipped"
    manager.stop()

def test_so_does_the_executor():
    assert pool.submit(len, "abc").result(60) == 3
    pool.shutdown()
"""


def test_pytest_names_a_module_that_uses_its_manager_at_its_top_and_lets_hooks_use_one(files, tmp_path):
    files(
        shop=SHOP + STARTED,
        conftest="import shop\ndef pytest_sessionstart(): print('hook', shop.manager.list())\n",
        test_shop="def test_one(): pass\n",
        used="import shop\nfrom actorproc import ProcedureManager\n"
        "other = ProcedureManager('other', workers=1).start()\nother.list()\n",
        test_used="import used\n",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]

    ran = subprocess.run(
        command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=90, check=False
    )

    assert "hook []" in ran.stdout
    assert "UsageError: the manager on" in ran.stdout
    assert "imported the module 'used', so it stays shut" in ran.stdout
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("options", [(), ("--import-mode=importlib",), ("-n", "2", "--dist=loadfile")])
def test_pytest_starts_nothing_before_a_test_uses_it(files, tmp_path, options):
    files(
        shop=SHOP
        + STARTED
        + "from actorproc import ProcedureExecutor\npool = ProcedureExecutor('calls', max_workers=1)\n",
        conftest="import shop\n",
        test_shop=TESTS,
    )
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider"]
    if "actorproc.testing.plugin" not in sys.modules:
        command += ["-p", "actorproc.testing.plugin"]

    collected = subprocess.run(
        [*command, "--collect-only"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (collected.returncode, (tmp_path / "state").exists()) == (0, False), collected.stdout
    ran = subprocess.run(
        [*command, *options], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=90, check=False
    )

    assert ran.returncode == 0, ran.stdout
    assert "3 passed" in ran.stdout
