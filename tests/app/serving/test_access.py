"""Access to the explorer, its end, and who sees which files."""

import asyncio
import re
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from websockets.exceptions import InvalidStatus

from app.serving import guard
from app.serving.guard import Rules
from app.session import opening
from app.session.work import visitors
from tests.support.served import Served, Tab, descendants, served, status, until
from tmmu_core.base.errors import UnreadableInput

HERE = {"host": "localhost:8501"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Start ``streamlit run app/main.py`` from a folder outside of the checkout."""
    with served(tmp_path_factory.mktemp("plain")) as running:
        yield running


def listening(process: int) -> set[str]:
    """Return the addresses on which a process listens, in the kernel's notation."""
    own = {link.readlink().name for link in Path(f"/proc/{process}/fd").iterdir() if link.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = row.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in own:
                found.add(columns[1].split(":")[0])
    return found


LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


@pytest.mark.slow
def test_streamlit_listens_on_this_machine_only(server: Served) -> None:
    assert listening(server.process.pid)
    assert listening(server.process.pid) <= LOOPBACK


@pytest.mark.slow
def test_rebound_host_name_is_rejected(server: Served) -> None:
    assert status(server.address) == 200
    assert status(server.address, {"Host": "rebound.example"}) == 403
    assert status(server.address, {"Origin": "http://other.example"}) == 403
    with pytest.raises(InvalidStatus):
        Tab(server, {"Origin": "http://other.example"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/app/static/main.py", "/media/../../../etc/passwd", "/static/%2e%2e/%2e%2e/etc/passwd"]
)
def test_files_of_the_server_are_not_served(server: Served, path: str) -> None:

    if status(server.address + path) == 200:
        with urllib.request.urlopen(server.address + path, timeout=10) as answer:
            assert b"<title>" in answer.read()  # streamlit's page, which is everybody's


@pytest.mark.slow
def test_upload_over_the_limit_is_rejected(server: Served) -> None:
    too_much = {"Content-Length": str(2**40)}
    assert status(f"{server.address}/_stcore/upload_file/a/b", too_much, "PUT") in (400, 403, 413)


@pytest.mark.slow
def test_heavy_work_runs_in_a_process_that_ends_with_its_tab(server: Served) -> None:
    before = descendants(server.process.pid)
    tab = Tab(server, graph="sample:D", planner="exact", options='{"budget":1000000000000000}')
    assert until(lambda: len(descendants(server.process.pid) - before) == 1)
    searching = descendants(server.process.pid) - before
    other = Tab(server, graph="sample:linear_chain")
    assert "linear_chain needs" in other.drawn()
    tab.close()
    assert until(lambda: not searching & descendants(server.process.pid))
    other.close()


def test_visitor_does_not_see_files_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf, data = opening.Shelf(), b"id,lower,upper,size\na,0,2,64\n"
    monkeypatch.setattr(visitors, "visitor", lambda: "ann")
    anns = shelf.put("secret.csv", data)
    monkeypatch.setattr(visitors, "visitor", lambda: "bob")
    assert shelf.names() == []
    assert shelf.get(anns) == ("secret.csv", data)  # by the link
    bobs = shelf.put("mine.csv", data)
    assert bobs != anns  # who has the same file does not learn that ann has it
    assert shelf.names() == [(bobs, "mine.csv")]
    monkeypatch.setenv(opening.GALLERY_ENV, "shared")
    assert sorted(name for _, name in shelf.names()) == ["mine.csv", "secret.csv"]


def test_key_does_not_follow_from_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitors, "visitor", lambda: "ann")
    one, other = (opening.Shelf().put("a.csv", b"same") for _ in range(2))
    assert one != other
    assert len(one.removeprefix("file:")) == 32


def test_files_of_the_command_line_are_shared_by_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = opening.Shelf()
    source = shelf.put("a.csv", b"same", visitors.SERVER)
    monkeypatch.setattr(visitors, "visitor", lambda: "bob")
    assert shelf.names() == [(source, "a.csv")]
    assert opening.Shelf().put("a.csv", b"same", visitors.SERVER) == source


def test_shelf_is_limited_by_bytes() -> None:
    shelf = opening.Shelf(max_bytes=100)
    sources = [shelf.put(f"{k}", bytes([k]) + bytes(range(60))) for k in range(3)]
    assert [source for source in sources if shelf.get(source)] == sources[-1:]


@pytest.mark.parametrize(
    "source",
    [
        *("file:/etc/passwd", "file:../../etc/passwd", "file://etc/passwd", "file:"),
        *("sample:../../etc/passwd", "sample:/etc/passwd", "sample:"),
        *("golden:../index.json", "golden:/etc/passwd", "golden:..", "golden:", "/etc/passwd", ""),
    ],
)
def test_link_cannot_read_a_file_of_the_server(source: str) -> None:
    with pytest.raises(UnreadableInput):
        opening.open_source(source)


@pytest.mark.parametrize(
    ("rules", "headers", "token", "answered"),
    [
        (Rules("localhost"), HERE, "", True),
        (Rules("127.0.0.1"), {"host": "127.0.0.1:8501"}, "", True),
        (Rules("::1"), {"host": "[::1]:8501"}, "", True),
        (Rules("localhost"), {"host": "rebound.example"}, "", False),
        (Rules("localhost"), {}, "", False),
        (Rules("localhost"), HERE | {"origin": "http://localhost:8501"}, "", True),
        (Rules("localhost"), HERE | {"origin": "http://localhost:9999"}, "", False),
        (Rules("localhost"), HERE | {"origin": "null"}, "", False),
        (Rules("0.0.0.0"), HERE, "", False),
        (Rules(""), HERE, "", False),
        (Rules("0.0.0.0", token="s3cret"), {"host": "big.example"}, "", False),
        (Rules("0.0.0.0", token="s3cret"), {"host": "big.example"}, "guess", False),
        (Rules("0.0.0.0", token="s3cret"), {"host": "big.example"}, "s3cret", True),
        (Rules("0.0.0.0", token="s3cret"), {"cookie": f"a=b; {guard.COOKIE}={Rules('', 's3cret').cookie}"}, "", True),
        (Rules("0.0.0.0", token="s3cret"), {"cookie": f"{guard.COOKIE}=s3cret"}, "", False),
        (Rules("0.0.0.0", token="s3cret"), {"cookie": "ü\x00=;;"}, "ü", False),
        (Rules("localhost", proxy_header="x-user"), {"host": "plans.example", "x-user": "ann"}, "", True),
        (Rules("localhost", proxy_header="x-user"), {"host": "plans.example"}, "", False),
        (Rules("0.0.0.0", "s3cret", "x-user"), {"host": "plans.example"}, "s3cret", False),
    ],
)
def test_request_is_answered_by_its_origin_and_token(
    rules: Rules, headers: dict[str, str], token: str, answered: bool
) -> None:
    assert (rules.refusal(headers, "/", token) == "") is answered


@pytest.mark.slow
def test_public_server_needs_the_token(tmp_path: Path) -> None:
    with served(tmp_path, ["--server.address", "0.0.0.0"], {guard.TOKEN: "s3cret"}) as server:
        assert not listening(server.process.pid) <= LOOPBACK
        assert status(server.address) == 403
        assert status(f"{server.address}/_stcore/upload_file/a/b", method="PUT") == 403
        with pytest.raises(InvalidStatus):
            Tab(server)
        cookie = {"Cookie": f"{guard.COOKIE}={Rules('', 's3cret').cookie}"}
        assert status(server.address, cookie) == 200
        tab = Tab(server, cookie, graph="sample:linear_chain")
        assert "linear_chain" in tab.drawn()
        Tab(server, cookie, graph="sample:D", planner="exact", options='{"budget":1000000000000000}')
        assert until(lambda: len(descendants(server.process.pid)) == 2)
        below = descendants(server.process.pid)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) in (0, -signal.SIGTERM)
        assert until(lambda: not any(Path(f"/proc/{one}").exists() for one in below))


@pytest.mark.parametrize("path", ["//evil.example/", "///evil.example/", "/\\evil.example/", "//evil.example\r\nx: y/"])
@pytest.mark.parametrize("token", ["", "s3cret"])
def test_redirect_stays_on_the_server(path: str, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "rules", lambda: Rules("localhost", token))
    sent: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    async def nobody(*_: object) -> None:
        raise AssertionError("this is answered by the guard")

    scope = {
        "type": "http",
        "method": "GET",
        "path": path + guard.FIRST_PAGE,
        "query_string": f"token={token}".encode() if token else b"",
        "headers": [(b"host", b"localhost")],
    }
    with ThreadPoolExecutor(1) as apart:  # where a browser was started before, a loop of its driver runs in this thread
        apart.submit(lambda: asyncio.run(guard.Guard(nobody)(scope, nobody, send))).result()  # type: ignore[arg-type]
    headers = dict(sent[0]["headers"])  # type: ignore[call-overload]
    assert sent[0]["status"] in (303, 307)
    assert re.match(rb"/[^/\\]", headers[b"location"])
    assert not any(b"\n" in value for value in headers.values())
