"""Run each task in its own worker process, report its progress, and stop or kill it on request.

A worker process ends after its task, or when the server ends. The fork server of ``multiprocessing`` imports the tasks
once and forks the workers. Without ``os.fork`` (Windows) workers are spawned.
"""

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tmmu_core.base.errors import TmmuError
from tmmu_core.base.limits import WORKER_BYTES, ceiling
from tmmu_core.planners.problem import Progress

NICENESS = 10  # lower priority than the server, so that the server handles page requests first
ENV_RENICE = "TMMU_STAND_BACK"  # with the value 0, workers run at normal priority
TICK = 0.05  # minimum seconds between two progress messages, and maximum seconds between two checks for a stop
STOP_TIMEOUT = 20.0  # seconds after which a stopped task that still runs is killed
CAN_FORK = hasattr(os, "fork")
CONTEXT: Any = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")
CONTEXT.set_forkserver_preload([f"{__package__}.tasks"])
Task = Callable[..., Any]  # module-level, called as task(context, *arguments)


class TaskNotFinished(TmmuError):
    """Raised if a task ended without a result although its input may be valid. The task can be started again."""

    code_id = "NOT_DONE"


@dataclass
class TaskContext:
    """First argument of a task: callbacks for progress and intermediate results."""

    progress: Progress
    found: Callable[[Any], None] = lambda _: None


def run(task: Task, arguments: tuple[Any, ...], progress: Progress, found: Callable[[Any], None]) -> Any:
    """Run a task in a worker and return its result, or raise its error.

    ``progress`` is called repeatedly. If it returns ``False``, the task is stopped and returns its best result. If it
    raises an error, or the task does not stop within :data:`STOP_TIMEOUT`, the task is killed. Raises
    :class:`TaskNotFinished` if there is no result.
    """
    connection, worker_end = CONTEXT.Pipe()
    process = CONTEXT.Process(target=work, args=(worker_end, task, arguments), daemon=True)
    try:
        process.start()
        worker_end.close()
        kind, value = _relay(connection, progress, found)
    except (EOFError, OSError) as error:
        what = "the worker process ended without a result: it was killed, or it needed more memory than its limit."
        raise TaskNotFinished(what, f"Raise the limit with {WORKER_BYTES.variable}=BYTES.") from error
    finally:
        connection.close()
        if process.pid is not None:
            process.terminate()
            process.join()
    if kind == "result":
        return value
    if kind == "failure":
        raise RuntimeError(f"a worker failed:\n{value}")
    raise value


def _relay(connection: Connection, progress: Progress, found: Callable[[Any], None]) -> tuple[str, Any]:
    """Pass messages to the callbacks until the task ends; return its last message: result, error or failure."""
    latest: tuple[str, int, int] = ("", 0, 0)
    deadline: float | None = None
    while True:
        if not progress(*latest) and deadline is None:
            deadline = time.monotonic() + STOP_TIMEOUT
            with suppress(OSError):  # the task has already ended; its last message is still in the pipe
                connection.send("stop")
        if deadline is not None and time.monotonic() > deadline:
            raise TaskNotFinished("the task was stopped before it had a result.", "Start it again.")
        if not connection.poll(TICK):
            continue
        kind, value = connection.recv()
        if kind == "progress":
            latest = value
        elif kind == "found":
            found(value)
        else:
            return kind, value


def work(connection: Connection, task: Task, arguments: tuple[Any, ...]) -> None:
    """Run one task in this process, and send its progress and its result to the server."""
    _limit_process()
    stopped = threading.Event()
    next_message = 0.0
    next_found = 0.0  # earlier intermediate results are dropped, so that sending takes at most 10 % of the time

    def watch() -> None:
        try:
            connection.recv_bytes()  # the message "stop"
            stopped.set()
            connection.recv_bytes()  # blocks until the server closes the connection
        except (EOFError, OSError):
            os._exit(1)

    def progress(doing: str, done: int, of: int) -> bool:
        nonlocal next_message
        if time.monotonic() >= next_message:
            next_message = time.monotonic() + TICK
            connection.send(("progress", (doing, int(done), int(of))))
        return not stopped.is_set()

    def found(value: Any) -> None:
        nonlocal next_found
        began = time.monotonic()
        if began >= next_found:
            connection.send(("found", value))
            now = time.monotonic()
            next_found = now + 10 * (now - began)

    context = TaskContext(progress, found)
    threading.Thread(target=watch, daemon=True).start()
    try:
        connection.send(("result", task(context, *arguments)))
    except TmmuError as error:
        connection.send(("error", error))
    except (MemoryError, BrokenPipeError):
        return  # the server sees the closed connection
    except Exception:
        connection.send(("failure", traceback.format_exc()))


def _limit_process() -> None:
    """Lower the priority of this process, limit its memory, and ignore Ctrl-C, which the server handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(ImportError, OSError, ValueError, AttributeError):  # not available on Windows
        if os.environ.get(ENV_RENICE, "") != "0":
            os.nice(NICENESS)
        import resource

        limit = ceiling(WORKER_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
