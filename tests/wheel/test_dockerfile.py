"""The Dockerfile: copied files exist, commands are ours, the user has no special rights."""

import json
import re

from app.cli.main import COMMANDS
from tests.support.paths import ROOT

TEXT = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
LINES = [line.split(maxsplit=1) for line in TEXT.splitlines() if line and not line.startswith("#")]


def shown_text(instruction: str) -> list[str]:
    return [" ".join(rest.split()) for word, rest in LINES if word == instruction]


def test_copied_files_exist_and_suffice_for_a_wheel() -> None:
    copied = [name for line in shown_text("COPY") if not line.startswith("--from") for name in line.split()[:-1]]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    assert {
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "app",
        "tmmu",
        "tmmu_core",
        "sample_graphs",
    } <= set(copied)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not set(copied) & set(ignored)


def test_server_runs_as_a_user_without_rights() -> None:
    (user,) = shown_text("USER")
    assert user not in ("root", "0")
    words = [word for word, _ in LINES]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert any(f"useradd --create-home --uid 10001 {user}" in line for line in shown_text("RUN"))


def test_container_serves_the_explorer_and_checks_its_health() -> None:
    (entry,) = shown_text("ENTRYPOINT")
    command = json.loads(entry)
    assert command[0] == "tmmu"
    assert command[1] in COMMANDS
    (port,) = shown_text("EXPOSE")
    assert command[command.index("--port") + 1] == port
    (health,) = shown_text("HEALTHCHECK")
    asked = json.loads(health.partition("CMD ")[2])
    compile(asked[-1], "healthcheck", "exec")
    assert f"127.0.0.1:{port}/_stcore/health" in asked[-1]


def test_versions_are_pinned() -> None:
    assert all(re.fullmatch(r"python:\d+\.\d+-slim( AS \w+)?", line) for line in shown_text("FROM"))
    assert any("-r requirements.lock" in line for line in shown_text("RUN"))
