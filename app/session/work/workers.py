"""Run each task in its own worker process; the caller gets progress and can stop or kill the task.

A worker ends after its result, or when the server ends. The fork server of ``multiprocessing`` imports the tasks once
and forks the workers. Without ``os.fork`` (Windows) workers are spawned.
"""

import copyreg
import io
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

from tmmu_core.base.errors import TmmuError
from tmmu_core.base.limits import WORKER_BYTES, ceiling
from tmmu_core.graph.model import Graph
from tmmu_core.planners.problem import Progress

NICENESS = 10
"""Niceness of workers: the server's pages come first."""
ENV_RENICE = "TMMU_STAND_BACK"
"""Environment variable; ``0`` keeps workers at normal priority."""
TICK = 0.05
"""Seconds between two progress messages."""
STOP_TIMEOUT = 20.0
"""Seconds until a stopped task is killed."""
CAN_FORK = hasattr(os, "fork")
CONTEXT: Any = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")
CONTEXT.set_forkserver_preload([f"{__package__}.tasks"])


class TaskNotFinished(TmmuError):
    """A task ended without a result although its input is valid. The error is never cached."""

    CODE = "NOT_DONE"

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(message)

    def record(self) -> dict[str, Any]:
        """Return the error as a JSON-ready mapping."""
        return {"code_id": self.CODE, "message": self.message, "hint": self.hint}


@dataclass
class TaskContext:
    """Interface of a running task: callbacks for progress and intermediate results, and its graph."""

    progress: Progress
    found: Callable[[Any], None] = lambda _: None
    graph: Graph | None = None
    """The graph of :attr:`TaskCall.graph`: a result that contains it is sent with a reference in its place."""


Task = Callable[..., Any]
"""A module-level function, called as ``task(context, *arguments)``."""


@dataclass(frozen=True)
class TaskCall:
    """A task with its arguments. ``graph`` is the graph that the server has and the task sets in its context."""

    task: Task
    arguments: tuple[Any, ...]
    graph: Graph | None = None


def prepare() -> None:
    """Start the fork server now, because its imports take seconds."""
    if CAN_FORK:
        forkserver.ensure_running()


# --- messages --------------------------------------------------------------------------------------------------------

_loading = threading.local()


def _known_graph() -> Any:
    return _loading.graph


def _dumped(value: Any, known: Graph | None) -> bytes:
    """Pickle a value; ``known``, which the server has too, is replaced by a reference."""

    def reduce_graph(graph: Graph) -> Any:
        return (_known_graph, ()) if graph is known else graph.__reduce_ex__(pickle.HIGHEST_PROTOCOL)

    out = io.BytesIO()
    pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**copyreg.dispatch_table, Graph: reduce_graph}
    pickler.dump(value)
    return out.getvalue()


# --- the server's side ---------------------------------------------------------------------------------------------


def run(call: TaskCall, progress: Progress, found: Callable[[Any], None] = lambda _: None) -> Any:
    """Run a task in a worker and return its result, or raise its error.

    ``progress`` is called repeatedly: ``False`` stops the task with its best result, an exception kills it.
    Raises :class:`TaskNotFinished` if the worker ends without a result.
    """
    connection, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=work, args=(theirs, call.task, call.arguments), daemon=True)
    try:
        process.start()
        theirs.close()
        kind, value = _relay(connection, call.graph, progress, found)
    except (EOFError, OSError) as error:
        raise TaskNotFinished(
            "the worker process ended without a result: it was killed, or it needed more memory than its limit.",
            f"Raise the limit with {WORKER_BYTES.variable}=BYTES.",
        ) from error
    finally:
        _loading.graph = None
        connection.close()
        if process.pid is not None:
            process.terminate()
            process.join()
    if kind == "result":
        return value
    if kind == "failure":
        raise RuntimeError(f"a worker failed:\n{value}")
    cls, arguments, attributes = value
    raised = cls.__new__(cls, *arguments)  # user errors have required keyword arguments
    raised.args = arguments
    vars(raised).update(attributes)
    raise raised


def _relay(
    connection: Connection, graph: Graph | None, progress: Progress, found: Callable[[Any], None]
) -> tuple[str, Any]:
    """Relay progress and return the last message: a result, an error or a failure."""
    last: tuple[str, int, int] = ("", 0, 0)
    until: float | None = None
    _loading.graph = graph
    while True:
        if not progress(*last) and until is None:
            until = time.monotonic() + STOP_TIMEOUT
            with suppress(OSError):  # it has just ended: its result is in the pipe
                connection.send("stop")
        if until is not None and time.monotonic() > until:
            raise TaskNotFinished("the task was stopped before it had a result.", "Start it again.")
        if not connection.poll(TICK):
            continue
        kind, value = pickle.loads(connection.recv_bytes())
        if kind == "progress":
            last = value
        elif kind == "found":
            found(value)
        else:
            return kind, value


# --- the worker ----------------------------------------------------------------------------------------------------


def work(connection: Connection, task: Task, arguments: tuple[Any, ...]) -> None:
    """Run one task in this process, report progress, send the result."""
    _lower_priority()
    stopped = threading.Event()
    next_message = 0.0
    next_found = 0.0  # wait ten times the duration of the last message, so that the result is not delayed

    def send(kind: str, value: Any) -> None:
        connection.send_bytes(_dumped((kind, value), context.graph))

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
    except (MemoryError, BrokenPipeError):
        return  # the server sees the closed connection
    except Exception:
        send("failure", traceback.format_exc())


def _lower_priority() -> None:
    """Lower the priority of this process, limit its memory, and leave Ctrl-C to the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ImportError, OSError, ValueError, AttributeError):  # not available on Windows
        if os.environ.get(ENV_RENICE, "") != "0":
            os.nice(NICENESS)
        import resource

        most = ceiling(WORKER_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
