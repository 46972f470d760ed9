"""Rows about where calls run: environment, signals, logging, limits and the main module."""

import inspect
import logging
import multiprocessing.shared_memory
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading
import time
import typing
import warnings

from trial import play, row

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # shells have what runs behind them ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ["TRIAL_MODE"] = "early"
warnings.filterwarnings("error", "old", FutureWarning)


# ---------------------------------------------------------------- signals and children
def interrupted_child():
    child = subprocess.Popen([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], **PIPES)
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    try:
        return child.wait(10) != 0
    finally:
        child.kill()
        child.communicate()


PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}


@row("a program that a call starts ends by SIGINT")
def _(call):
    return call(interrupted_child)


def terminated_child():
    found = []

    def work():
        child = subprocess.Popen(["sleep", "60"])
        child.terminate()
        try:
            found.append(child.wait(10))
        finally:
            child.kill()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found == [-signal.SIGTERM]


@row("a program that a thread of a call starts ends by SIGTERM")
def _(call):
    return call(terminated_child)


def is_main_thread():
    previous = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, previous)
    return threading.current_thread() is threading.main_thread()


@row("a call is made on the main thread, and may set signal handlers")
def _(call):
    return call(is_main_thread)


# ---------------------------------------------------------------- what a process has
def place():
    return str(pathlib.Path.cwd()), sys.argv, os.environ.get("TRIAL_MODE")


@row("directory, arguments and environment are those of the program")
def _(call):
    return call(place) == (str(pathlib.Path.cwd()), sys.argv, "early")


def path():
    return sys.path


@row("modules are found where the program finds them")
def _(call):
    return set(filter(None, map(str, sys.path))) <= set(call(path)) | {str(pathlib.Path.cwd())}


def shared():
    block = multiprocessing.shared_memory.SharedMemory(create=True, size=64)
    block.buf[:2] = b"ok"
    block.close()
    return block.name


@row("shared memory that a call made is there for the next one")
def _(call):
    name = call(shared)
    return pathlib.Path("/dev/shm", name).read_bytes()[:2] == b"ok"


# ---------------------------------------------------------------- logging and warnings
class Heard(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


def logs():
    try:
        int("inner")
    except ValueError:
        logging.getLogger("trial.part").info("said %d", 5, extra={"order": 7}, exc_info=True)


@row("log records of calls reach the program's handlers, with extra and exc_info")
def _(call):
    heard = Heard()
    logger = logging.getLogger("trial")
    logger.setLevel(logging.INFO)
    logger.addHandler(heard)
    try:
        call(logs)
        end = time.monotonic() + 5
        while not heard.records and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        logger.removeHandler(heard)
    found = [(record.name, record.getMessage(), record.order, bool(record.exc_info)) for record in heard.records]
    return set(found) == {("trial.part", "said 5", 7, True)}


def warns():
    warnings.warn("old", FutureWarning, stacklevel=1)


@row("warnings that the program makes errors are errors in a call")
def _(call):
    try:
        call(warns)
    except FutureWarning:
        return True
    return False


# ---------------------------------------------------------------- the main module
class Model:
    def __init__(self, weight: "Weight"):
        self.weight = weight


class Weight(int):
    pass


def reads(data):
    return pickle.loads(data).weight, Model.__name__


@row("pickle.loads of an object of the script")
def _(call):
    return call(reads, pickle.dumps(Model(Weight(3)))) == (3, "Model")


def hints():
    return typing.get_type_hints(Model.__init__)["weight"].__name__


@row("typing.get_type_hints with postponed annotations")
def _(call):
    return call(hints) == "Weight"


def source():
    return inspect.getsource(Model)


@row("inspect.getsource of a class of the script")
def _(call):
    try:
        expected = inspect.getsource(Model)
    except OSError:  # in a notebook there is no file
        return True
    return call(source) == expected


def doubled(number):
    return 2 * number


# ---------------------------------------------------------------- ends of calls and workers
def exits():
    sys.exit(3)


@row("sys.exit in a call is its exception, and the pool goes on")
def _(call):
    try:
        call(exits)
    except SystemExit as error:
        return error.code == 3 and call(doubled, 1) == 2
    return False


def crash_once(marker):
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "made again"


@row("a call whose worker is killed is made again")
def _(call):
    marker = pathlib.Path(sys.argv[2]) / f"crash-{os.getpid()}"
    return call(crash_once, marker) == "made again"


def thrown():
    raise Odd("left", "right")


class Odd(Exception):
    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


@row("an exception whose __init__ needs other arguments does not hang")
def _(call):
    try:
        call(thrown)
    except Exception as error:  # noqa: BLE001 - of its own kind, or in words
        return "left and right" in str(error)
    return False


def generates():
    return (number for number in range(3))


@row("a result that cannot be pickled is an error of its call alone")
def _(call):
    try:
        call(generates)
    except Exception:  # noqa: BLE001 - of any kind
        return call(doubled, 4) == 8
    return False


if __name__ == "__main__":
    play()
