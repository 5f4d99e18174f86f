"""Work in processes of its own: it can be watched, stopped and killed, and it ends with the server.

::

    server ──start──► starter ──fork──► worker          one worker per piece of work; it ends with its answer
       ▲                                  │
       └────── progress, finds, answer ◄──┘             one socket per worker; the other way: "stop"

The starter (this file as a script) has everything imported that work needs, so a worker is there in a
hundredth of a second. It runs no work itself, so it always listens: it kills a worker when the server says so, and all
of them when the server is gone, however that ended. What is sent is pickled: both ends are this program, and what a
worker answers it has built itself.
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

from app.session.question import Asker, NotDone, Question
from tmmu_core.errors import TmmuError
from tmmu_core.graph.model import Graph
from tmmu_core.limits import WORKER_BYTES, ceiling
from tmmu_core.planners.problem import Progress

ROOT = Path(__file__).resolve().parents[2]
NICENESS, LAST = 10, 19
"""How far workers stand back behind the server, which draws everybody's pages; how far after :data:`SOON`."""
SOON = 1.0
"""Seconds after which work stands back behind what others began later: a search behind their first pictures."""
STANDS_BACK = "TMMU_STAND_BACK"
"""``0``: workers do not stand back. Where others keep the processors busy, whoever does is not heard for long."""
TICK = 0.05
"""Seconds between two looks at the other end."""
UNHEARD = 20.0
"""Seconds that work asked to stop has to say what it found, before it is killed."""
LAST_WORDS = 10.0
"""Seconds that the starter has to end by itself when the server does."""
_START, _KILL = b"start", b"kill"
_RECORD = 32
_LENGTH = struct.Struct("<Q")


# --- what is sent ----------------------------------------------------------------------------------------------------


_held = threading.local()


def _known(name: str) -> Any:
    return _held.known[name]


def dumped(value: Any, known: Mapping[str, Any]) -> bytes:
    """``value`` pickled, graphs in ``known`` by their names."""
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
    """The other way."""
    _held.known = known
    try:
        return pickle.loads(data)
    finally:
        _held.known = {}


# --- the asker's end -----------------------------------------------------------------------------------------------


class Workers:
    """The starter's other end; it is started when it is first needed, and again where it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control: socket.socket | None = None
        self._starter: subprocess.Popen[bytes] | None = None
        self._orders = itertools.count()

    @property
    def starter(self) -> int | None:
        """The starter's process, where it runs: every worker is a child of it."""
        return None if self._starter is None else self._starter.pid

    def ready(self) -> None:
        """Start the starter, so that nobody waits for it later."""
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

    def run(self, question: Question, progress: Progress, heard: Callable[[Any], None] = lambda _: None) -> Any:
        """The answer, or what the work raised. ``progress`` is asked all the while, and may raise: then it is killed.

        Once ``progress`` says no, the work is asked to stop with the best it has. Raises :class:`NotDone` where it ends
        without an answer.
        """
        number = next(self._orders)
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    self._start(number, theirs)
            except OSError as error:
                raise NotDone(f"no process can be begun for the work: {error}.", "Try again in a moment.") from error
            try:
                kind, sent = _conversation(_Line(ours), question, progress, heard)
            except (EOFError, OSError) as error:
                raise NotDone(
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
        """End the starter and every worker."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._starter is not None:
                try:
                    self._starter.wait(LAST_WORDS)
                except subprocess.TimeoutExpired:  # on a busy machine a young one does not listen yet
                    with suppress(OSError):
                        os.killpg(self._starter.pid, signal.SIGKILL)
                    self._starter.wait()
            self._control = self._starter = None


def _conversation(
    line: _Line, question: Question, progress: Progress, heard: Callable[[Any], None]
) -> tuple[str, memoryview]:
    """Ask, relay, and give the last message: an answer or an error."""
    line.say(dumped((question.task, question.arguments), {}))
    last: tuple[str, int, int] = ("", 0, 0)
    until: float | None = None
    while True:
        if not progress(*last) and until is None:
            until = time.monotonic() + UNHEARD
            with suppress(OSError):  # it has ended in this very moment: its answer lies on the line
                line.say(b"stop")
        if until is not None and time.monotonic() > until:
            raise NotDone("the work was stopped before it had found anything.", "Start it again.")
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
    """Messages over a stream: eight bytes of length, then that many."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line

    def say(self, data: bytes) -> None:
        self.line.sendall(_LENGTH.pack(len(data)))
        self.line.sendall(data)

    def listen(self) -> bytearray:
        """The next message. ``EOFError`` where the other end is gone."""
        return self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0])

    def hear(self) -> tuple[str, memoryview]:
        """``(kind, rest)`` of a worker's next message."""
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
    """Hear one question, tell how far it is, answer."""
    task, arguments = pickle.loads(line.listen())
    stop = False
    next_look = 0.0
    paid = 0.0  # no find is sent before ten times what the last one took: the answer comes first

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
            line.say(b"F" + dumped(value, asker.known))
            now = time.monotonic()
            paid = now + 10 * (now - began)

    asker = Asker(progress, found)
    try:
        answer = b"A" + dumped(task(asker, *arguments), asker.known)
    except TmmuError as error:
        answer = b"E" + dumped((type(error), error.args, error.__dict__, ""), asker.known)
    except MemoryError:
        return  # the asker hears the line end
    except Exception:
        answer = b"E" + pickle.dumps((None, (), {}, traceback.format_exc()))
    line.say(answer)


# --- the starter ---------------------------------------------------------------------------------------------------


def stands_back() -> bool:
    """Whether work comes after the pages."""
    return os.environ.get(STANDS_BACK, "") != "0"


def start(control: socket.socket) -> None:
    """Fork a worker per order, kill those that are to be killed; when the server is gone, kill all and end."""
    living: dict[int, int] = {}
    young: dict[int, float] = {}
    while True:
        ready = select.select([control], [], [], SOON / 2)[0]
        for number, process in tuple(living.items()):
            if os.waitpid(process, os.WNOHANG)[0]:
                del living[number]
                young.pop(number, None)
            elif stands_back() and time.monotonic() > young.get(number, float("inf")) + SOON:
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
        except OSError:  # no room for another: the asker hears the line end, and who works goes on
            os.close(handed[0])
            continue
        if not process:
            _as_worker(control, handed[0])
        living[number], young[number] = process, time.monotonic()
        os.close(handed[0])
    os.killpg(0, signal.SIGKILL)


def _have_stand_back(process: int) -> None:
    """Have a worker of ours come last from now on, with all threads it has and will have: each has its own niceness."""
    with suppress(OSError):
        tasks = Path(f"/proc/{process}/task")
        for thread in [int(task.name) for task in tasks.iterdir()] if tasks.exists() else [process]:
            os.setpriority(os.PRIO_PROCESS, thread, LAST)


def _as_worker(control: socket.socket, descriptor: int) -> None:
    """Be a worker, and end."""
    try:
        control.close()
        if stands_back():
            os.nice(NICENESS)
        _bounded()
        with socket.socket(fileno=descriptor) as line, suppress(EOFError, OSError):
            work(_Line(line))
    finally:
        os._exit(0)


def _bounded() -> None:
    """Give this process no more memory than work may take, where the system counts it."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        most = ceiling(WORKER_BYTES)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Import what work needs, then wait for orders on the socket whose number is the argument."""
    import gc

    from app.session import tasks

    assert tasks  # what follows finds it there
    if stands_back():
        with suppress(OSError):  # Linux shares out by sessions first: niceness alone orders those of this one
            Path("/proc/self/autogroup").write_text(str(NICENESS))
    gc.freeze()  # what is there now is shared with every worker
    start(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    from app.session import workers  # as a script this file is ``__main__``: what is pickled must name the module

    workers.main()
