"""Worker processes with progress, stop and kill; they end with the server.

::

    server ──socket──► starter ──fork──► worker          one worker per task; it ends with its result
       ▲                                   │
       └──── progress, found, result ◄─────┘             one connection per worker; the other way: "stop"

The starter (this file as a script) has imported everything that tasks need, so a fork takes 10 ms. A worker ends when
its connection closes: the server closes it to kill the task, and the system closes it when the server ends. Messages
are pickled; both ends are this program. Without ``os.fork`` (Windows) a task runs in the calling thread: it can be
stopped, but not killed, and its memory is not limited.
"""

from __future__ import annotations

import copyreg
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

from app.session.work.task_messages import TaskCall, TaskContext, TaskNotFinished
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.limits import WORKER_BYTES, ceiling
from tmmu_core.graph.model import Graph
from tmmu_core.planners.problem import Progress

ROOT = Path(__file__).resolve().parents[3]
NICENESS = 10
"""Niceness of workers: the server's pages come first."""
ENV_RENICE = "TMMU_STAND_BACK"
"""Environment variable; ``0`` keeps workers at normal priority."""
TICK = 0.05
"""Seconds between two progress messages."""
STOP_TIMEOUT = 20.0
"""Seconds until a stopped task is killed."""
SHUTDOWN_TIMEOUT = 10.0
"""Seconds until the starter is killed at shutdown."""
CAN_FORK = hasattr(os, "fork")


# --- messages --------------------------------------------------------------------------------------------------------


_loading = threading.local()


def _known_graph(name: str) -> Any:
    return _loading.known[name]


def dumped(value: Any, known: Mapping[str, Any]) -> bytes:
    """Pickle a value; graphs in ``known`` are replaced by their names."""
    names = {id(graph): name for name, graph in known.items()}

    def reduce_graph(graph: Graph) -> Any:
        name = names.get(id(graph))
        return graph.__reduce_ex__(pickle.HIGHEST_PROTOCOL) if name is None else (_known_graph, (name,))

    out = io.BytesIO()
    pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**copyreg.dispatch_table, Graph: reduce_graph}
    pickler.dump(value)
    return out.getvalue()


def loaded(data: bytes, known: Mapping[str, Any]) -> Any:
    """Unpickle a value."""
    _loading.known = known
    try:
        return pickle.loads(data)
    finally:
        _loading.known = {}


# --- the server's side ---------------------------------------------------------------------------------------------


class Workers:
    """The server's side: starts the starter when needed, and runs tasks in workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._starter: subprocess.Popen[bytes] | None = None

    @property
    def starter(self) -> int | None:
        """Process id of the starter, the parent of all workers."""
        return None if self._starter is None else self._starter.pid

    def ready(self) -> None:
        """Start the starter."""
        if CAN_FORK:
            with self._lock:
                self._started()

    def _started(self) -> socket.socket:
        if self._starter is not None and self._starter.poll() is None and self._control is not None:
            return self._control
        self._control, theirs = socket.socketpair()
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        with theirs:
            self._starter = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        return self._control

    def run(self, call: TaskCall, progress: Progress, found: Callable[[Any], None] = lambda _: None) -> Any:
        """Run a task and return its result, or raise its error.

        ``progress`` is called repeatedly: ``False`` stops the task with its best result, an exception kills it.
        Raises :class:`TaskNotFinished` if the worker ends without a result.
        """
        if not CAN_FORK:
            return call.task(TaskContext(progress, found, dict(call.known)), *call.arguments)
        connection, theirs = Pipe()
        with connection:
            try:
                with theirs, self._lock:
                    socket.send_fds(self._started(), [b"."], [theirs.fileno()])
            except OSError as error:
                raise TaskNotFinished(f"no worker process can be started: {error}.", "Try again later.") from error
            try:
                kind, value = _relay(connection, call, progress, found)
            except (EOFError, OSError) as error:
                raise TaskNotFinished(
                    "the worker process ended without a result: it was killed, or it needed more memory than its "
                    "limit.",
                    f"Raise the limit with {WORKER_BYTES.variable}=BYTES.",
                ) from error
        if kind == "result":
            return value
        if kind == "failure":
            raise RuntimeError(f"a worker failed:\n{value}")
        cls, arguments, attributes = value
        raised = cls.__new__(cls, *arguments)  # user errors have required keyword arguments
        raised.args = arguments
        vars(raised).update(attributes)
        raise raised

    def end(self) -> None:
        """Stop the starter."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._starter is not None:
                try:
                    self._starter.wait(SHUTDOWN_TIMEOUT)
                except subprocess.TimeoutExpired:  # on a busy machine it may still be importing
                    self._starter.kill()
                    self._starter.wait()
            self._control = self._starter = None


def _relay(connection: Connection, call: TaskCall, progress: Progress, found: Callable[[Any], None]) -> tuple[str, Any]:
    """Send the task, relay progress, and return the last message: a result, an error or a failure."""
    connection.send_bytes(dumped((call.task, call.arguments), {}))
    last: tuple[str, int, int] = ("", 0, 0)
    until: float | None = None
    while True:
        if not progress(*last) and until is None:
            until = time.monotonic() + STOP_TIMEOUT
            with suppress(OSError):  # it has just ended: its result is in the socket
                connection.send_bytes(b"stop")
        if until is not None and time.monotonic() > until:
            raise TaskNotFinished("the task was stopped before it had a result.", "Start it again.")
        if not connection.poll(TICK):
            continue
        kind, value = loaded(connection.recv_bytes(), call.known)
        if kind == "progress":
            last = value
        elif kind == "found":
            found(value)
        else:
            return kind, value


# --- the worker ----------------------------------------------------------------------------------------------------


def work(connection: Connection) -> None:
    """Receive one task, report progress, send the result."""
    task, arguments = pickle.loads(connection.recv_bytes())
    stopped = threading.Event()
    next_message = 0.0
    next_found = 0.0  # wait ten times the duration of the last message, so that the result is not delayed

    def send(kind: str, value: Any) -> None:
        connection.send_bytes(dumped((kind, value), context.known))

    def watch() -> None:
        try:
            connection.recv_bytes()
            stopped.set()
            connection.recv_bytes()
        except (EOFError, OSError):
            os._exit(1)  # the server closed the connection

    def progress(doing: str, done: int, of: int) -> bool:
        nonlocal next_message
        if time.monotonic() >= next_message:
            next_message = time.monotonic() + TICK
            send("progress", (doing, int(done), int(of)))
        return not stopped.is_set()

    def found(value: Any) -> None:
        nonlocal next_found
        began = time.monotonic()
        if began >= next_found:
            send("found", value)
            now = time.monotonic()
            next_found = now + 10 * (now - began)

    context = TaskContext(progress, found)
    threading.Thread(target=watch, daemon=True).start()
    try:
        send("result", task(context, *arguments))
    except TmmuError as error:
        send("error", (type(error), error.args, vars(error)))
    except MemoryError:
        return  # the server sees the closed connection
    except Exception:
        send("failure", traceback.format_exc())


# --- the starter ---------------------------------------------------------------------------------------------------


def start(control: socket.socket) -> None:
    """Fork a worker for each connection that the server sends, until the server ends."""
    while True:
        record, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not record:
            return
        with suppress(OSError):  # the server sees the closed connection; other workers continue
            if not os.fork():
                _run_as_worker(control, descriptors[0])
        os.close(descriptors[0])


def _run_as_worker(control: socket.socket, descriptor: int) -> None:
    """Run as a worker and exit."""
    try:
        control.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # tasks wait for their own child processes
        if os.environ.get(ENV_RENICE, "") != "0":
            os.nice(NICENESS)
        _limit_memory()
        with Connection(descriptor) as connection, suppress(EOFError, OSError):
            work(connection)
    finally:
        os._exit(0)


def _limit_memory() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = ceiling(WORKER_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Import the tasks, then serve requests on the socket given as argument."""
    import gc

    from app.session.work import tasks

    assert tasks  # imported here, so that every worker has it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, and with it the workers
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system removes ended workers
    gc.freeze()  # all modules loaded now are shared with every worker
    start(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    from app.session.work import workers  # as a script this file is ``__main__``: pickles must name the module

    workers.main()
