"""Worker processes with progress, stop and kill; they end with the server.

::

    server ──start──► starter ──fork──► worker          one worker per piece of work; it ends with its answer
       ▲                                  │
       └────── progress, finds, answer ◄──┘             one socket per worker; the other way: "stop"

The starter (this file as a script) has imported everything that tasks need, so a fork takes 10 ms. It runs no task
itself: it kills a worker on request, and all workers when the server ends. Messages are pickled; both ends are this
program. Where ``os.fork`` is missing (Windows), a task runs in the thread that asks for it: it can be stopped, but not
killed, and its memory is not limited.
"""

from __future__ import annotations

import copyreg
import io
import itertools
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.session.work.task_messages import TaskCall, TaskContext, TaskNotFinished
from tmmu_core.base.errors import TmmuError
from tmmu_core.base.limits import WORKER_BYTES, ceiling
from tmmu_core.graph.model import Graph
from tmmu_core.planners.problem import Progress

ROOT = Path(__file__).resolve().parents[3]
NICENESS, LAST = 10, 19
"""Niceness of a new worker, and after :data:`RENICE_AFTER`: pages come first."""
RENICE_AFTER = 1.0
"""Seconds after which a worker gets the lowest priority, behind newer tasks."""
ENV_RENICE = "TMMU_STAND_BACK"
"""Environment variable; ``0`` keeps workers at normal priority."""
TICK = 0.05
"""Polling interval in seconds."""
STOP_TIMEOUT = 20.0
"""Seconds until a stopped task is killed."""
SHUTDOWN_TIMEOUT = 10.0
"""Seconds until the starter is killed at shutdown."""
CAN_FORK = hasattr(os, "fork")
_START, _KILL = b"start", b"kill"
_RECORD = 32
_LENGTH = struct.Struct("<Q")


# --- messages --------------------------------------------------------------------------------------------------------


_held = threading.local()


def _known(name: str) -> Any:
    return _held.known[name]


def dumped(value: Any, known: Mapping[str, Any]) -> bytes:
    """Pickle a value; graphs in ``known`` are replaced by their names."""
    names = {id(graph): name for name, graph in known.items()}

    def of_graph(graph: Graph) -> Any:
        name = names.get(id(graph))
        return graph.__reduce_ex__(pickle.HIGHEST_PROTOCOL) if name is None else (_known, (name,))

    out = io.BytesIO()
    pickler = pickle.Pickler(out, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**copyreg.dispatch_table, Graph: of_graph}
    pickler.dump(value)
    return out.getvalue()


def loaded(data: bytes | memoryview, known: Mapping[str, Any]) -> Any:
    """Unpickle a value."""
    _held.known = known
    try:
        return pickle.loads(data)
    finally:
        _held.known = {}


# --- the server's side ---------------------------------------------------------------------------------------------


class Workers:
    """The server's side: starts the starter when needed, and runs tasks in workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._starter: subprocess.Popen[bytes] | None = None
        self._orders = itertools.count()

    @property
    def starter(self) -> int | None:
        """Process id of the starter, the parent of all workers."""
        return None if self._starter is None else self._starter.pid

    def ready(self) -> None:
        """Start the starter."""
        if CAN_FORK:
            with self._lock:
                self._begun()

    def _begun(self) -> socket.socket:
        if self._starter is not None and self._starter.poll() is None and self._control is not None:
            return self._control
        ours, theirs = socket.socketpair()
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
        with theirs:
            self._starter = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # Ctrl-C is the server's; and the whole group is killed at once
            )
        self._control = ours
        return ours

    def _start(self, number: int, theirs: socket.socket) -> None:
        with self._lock:
            try:
                socket.send_fds(self._begun(), [_order(_START, number)], [theirs.fileno()])
            except OSError:  # it went in this very moment
                self._starter = None
                socket.send_fds(self._begun(), [_order(_START, number)], [theirs.fileno()])

    def _kill(self, number: int) -> None:
        with self._lock, suppress(OSError):
            if self._control is not None:
                self._control.sendall(_order(_KILL, number))

    def run(self, question: TaskCall, progress: Progress, heard: Callable[[Any], None] = lambda _: None) -> Any:
        """Run a task and return its result, or raise its error.

        ``progress`` is called repeatedly: ``False`` stops the task with its best result, an exception kills it.
        Raises :class:`TaskNotFinished` if the worker ends without a result.
        """
        if not CAN_FORK:
            return question.task(TaskContext(progress, heard, dict(question.known)), *question.arguments)
        number = next(self._orders)
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    self._start(number, theirs)
            except OSError as error:
                raise TaskNotFinished(
                    f"no process can be begun for the work: {error}.", "Try again in a moment."
                ) from error
            try:
                kind, sent = _conversation(_Line(ours), question, progress, heard)
            except (EOFError, OSError) as error:
                raise TaskNotFinished(
                    "the work ended without an answer: it was killed, or it took more memory than it may.",
                    f"If it needs more, raise the limit: {WORKER_BYTES.variable}=N.",
                ) from error
            finally:
                self._kill(number)
        if kind == "answer":
            return loaded(sent, question.known)
        cls, arguments, said, trace = loaded(sent, question.known)
        if cls is None:
            raise RuntimeError(f"a worker failed:\n{trace}")
        raise _again(cls, arguments, said)

    def end(self) -> None:
        """Stop the starter and all workers."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._starter is not None:
                try:
                    self._starter.wait(SHUTDOWN_TIMEOUT)
                except subprocess.TimeoutExpired:  # on a busy machine a young one does not listen yet
                    with suppress(OSError):
                        os.killpg(self._starter.pid, signal.SIGKILL)
                    self._starter.wait()
            self._control = self._starter = None


def _conversation(
    line: _Line, question: TaskCall, progress: Progress, heard: Callable[[Any], None]
) -> tuple[str, memoryview]:
    """Send the task, relay progress, and return the last message: a result or an error."""
    line.say(dumped((question.task, question.arguments), {}))
    last: tuple[str, int, int] = ("", 0, 0)
    until: float | None = None
    while True:
        if not progress(*last) and until is None:
            until = time.monotonic() + STOP_TIMEOUT
            with suppress(OSError):  # it has just ended: its result is in the socket
                line.say(b"stop")
        if until is not None and time.monotonic() > until:
            raise TaskNotFinished("the work was stopped before it had found anything.", "Start it again.")
        if not select.select([line.line], [], [], TICK)[0]:
            continue
        kind, sent = line.hear()
        if kind == "progress":
            last = pickle.loads(sent)
        elif kind == "found":
            heard(loaded(sent, question.known))
        else:
            return kind, sent


def _order(what: bytes, number: int) -> bytes:
    return b"%s %d" % (what, number) + b" " * (_RECORD - len(b"%s %d" % (what, number)))


def _again(cls: type[BaseException], arguments: tuple[Any, ...], said: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *arguments)
    error.args = arguments
    error.__dict__.update(said)
    return error


_KINDS = {b"P": "progress", b"F": "found", b"A": "answer", b"E": "error"}


class _Line:
    """Length-prefixed messages over a socket."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line

    def say(self, data: bytes) -> None:
        self.line.sendall(_LENGTH.pack(len(data)))
        self.line.sendall(data)

    def listen(self) -> bytearray:
        """Return the next message. Raises ``EOFError`` if the other end is closed."""
        return self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0])

    def hear(self) -> tuple[str, memoryview]:
        """Return ``(kind, rest)`` of a worker's next message."""
        message = memoryview(self.listen())
        return _KINDS[bytes(message[:1])], message[1:]

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        rest = memoryview(data)
        while rest:
            got = self.line.recv_into(rest)
            if not got:
                raise EOFError
            rest = rest[got:]
        return data


# --- the worker ----------------------------------------------------------------------------------------------------


def work(line: _Line) -> None:
    """Receive one task, report progress, send the result."""
    task, arguments = pickle.loads(line.listen())
    stop = False
    next_look = 0.0
    paid = 0.0  # wait ten times the duration of the last message, so that the result is not delayed

    def progress(doing: str, done: int, of: int) -> bool:
        nonlocal stop, next_look
        now = time.monotonic()
        if now >= next_look:
            next_look = now + TICK
            line.say(b"P" + pickle.dumps((doing, int(done), int(of))))
            stop = stop or bool(select.select([line.line], [], [], 0)[0])
        return not stop

    def found(value: Any) -> None:
        nonlocal paid
        began = time.monotonic()
        if began >= paid:
            line.say(b"F" + dumped(value, context.known))
            now = time.monotonic()
            paid = now + 10 * (now - began)

    context = TaskContext(progress, found)
    try:
        answer = b"A" + dumped(task(context, *arguments), context.known)
    except TmmuError as error:
        answer = b"E" + dumped((type(error), error.args, error.__dict__, ""), context.known)
    except MemoryError:
        return  # the server sees the closed socket
    except Exception:
        answer = b"E" + pickle.dumps((None, (), {}, traceback.format_exc()))
    line.say(answer)


# --- the starter ---------------------------------------------------------------------------------------------------


def renices() -> bool:
    """Return whether workers run at lower priority."""
    return os.environ.get(ENV_RENICE, "") != "0"


def start(control: socket.socket) -> None:
    """Fork and kill workers on request; kill all when the server ends."""
    living: dict[int, int] = {}
    young: dict[int, float] = {}
    while True:
        ready = select.select([control], [], [], RENICE_AFTER / 2)[0]
        for number, process in tuple(living.items()):
            if os.waitpid(process, os.WNOHANG)[0]:
                del living[number]
                young.pop(number, None)
            elif renices() and time.monotonic() > young.get(number, float("inf")) + RENICE_AFTER:
                del young[number]
                _have_stand_back(process)
        if not ready:
            continue
        record, handed, _, _ = socket.recv_fds(control, _RECORD, 1)
        if not record:
            break
        what, number_text = record.split()
        number = int(number_text)
        if what == _KILL:
            if number in living:  # not waited for yet: its number cannot be another process's
                os.kill(living[number], signal.SIGKILL)
            continue
        try:
            process = os.fork()
        except OSError:  # the server sees the closed socket; other workers continue
            os.close(handed[0])
            continue
        if not process:
            _as_worker(control, handed[0])
        living[number], young[number] = process, time.monotonic()
        os.close(handed[0])
    os.killpg(0, signal.SIGKILL)


def _have_stand_back(process: int) -> None:
    """Give a worker and its threads the lowest priority."""
    with suppress(OSError):
        tasks = Path(f"/proc/{process}/task")
        for thread in [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [process]:
            os.setpriority(os.PRIO_PROCESS, thread, LAST)


def _as_worker(control: socket.socket, descriptor: int) -> None:
    """Run as a worker and exit."""
    try:
        control.close()
        if renices():
            os.nice(NICENESS)
        _bounded()
        with socket.socket(fileno=descriptor) as line, suppress(EOFError, OSError):
            work(_Line(line))
    finally:
        os._exit(0)


def _bounded() -> None:
    """Limit the memory of this process."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = ceiling(WORKER_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Import the tasks, then serve requests on the socket given as argument."""
    import gc

    from app.session.work import tasks

    assert tasks  # what follows finds it there
    if renices():
        with suppress(OSError):  # Linux shares out by sessions first: niceness alone orders those of this one
            Path("/proc/self/autogroup").write_text(str(NICENESS))
    gc.freeze()  # all modules loaded now are shared with every worker
    start(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    from app.session.work import workers  # as a script this file is ``__main__``: pickles must name the module

    workers.main()
