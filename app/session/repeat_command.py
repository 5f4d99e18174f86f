"""The ``tmmu`` command that computes the shown plan again, byte for byte, and the files that the command reads."""

import json
import re
import shlex
from collections.abc import Sequence

from app.session import history
from app.session.opening import SAMPLES, samples, shelf
from app.session.planning import Shown, requested
from tmmu_core.base.escaping import visible
from tmmu_core.planners.problem import GIVEN
from tmmu_core.plans.making.request import PlanRequest
from tmmu_core.plans.making.request_options import OPTION_SPECS, option_pairs, option_texts

FILES = {"arenas": "arenas.json", "order": "order.json", "shard_spec": "shards.json"}  # option → file of the command


def command(shown: Shown, before_option: str = " ") -> str:
    """Return the command that plans again, or verifies a finished plan; ``before_option``: text before each option."""
    file = file_of(shown)
    if shown.opened.plan is not None:
        return _line(["tmmu", "verify", file])
    parts = ["tmmu", "plan", file]
    request = _command_request(shown)
    for name, text in option_texts(request).items():
        spec = OPTION_SPECS[name]
        if name == "options":
            for key, value in request.options.items():
                is_text = option_pairs([f"{key}={value}"]) == {key: value}  # else the value needs JSON quotes
                text = value if is_text else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
                parts += [spec.option, f"{key}={text}"]
        else:
            parts += [spec.option, FILES.get(name, text)]
    stem = file_stem(shown.opened.name)
    output = f"{stem}.plan.json"
    return _line([*parts, "-o", output if output != file else f"{stem}.repeated.plan.json"], before_option)


def _line(parts: Sequence[str], before_option: str = " ") -> str:
    """Return the words as a shell command. Control and invisible characters are written as octal codes."""
    words = ""
    for part in parts:
        words += (before_option if part.startswith("-") else " ") if words else ""
        if visible(part) == part:
            words += shlex.quote(part)
            continue
        inner = part.replace("\\", "\\\\").replace("'", "\\'").encode(errors="replace").decode()
        codes = ["".join(f"\\{byte:03o}" for byte in c.encode()) if visible(c) != c else c for c in inner]
        words += f"$'{''.join(codes)}'"
    return words


def files(shown: Shown) -> dict[str, bytes]:
    """Return name → content of the files that the command reads in addition to the graph."""
    if shown.opened.plan is not None:
        return {}
    request = _command_request(shown)
    return {
        file: json.dumps(getattr(request, name), indent=2).encode() + b"\n"
        for name, file in FILES.items()
        if name in option_texts(request)
    }


def _command_request(shown: Shown) -> PlanRequest:
    request = requested(shown.choice, shown.opened)
    # Without --planner, the offsets in the file are used.
    return request.but(planner=None, options={}) if request.planner == GIVEN else request


def file_of(shown: Shown) -> str:
    """Return the name of the open file for the command line."""
    source = shown.opened.source
    paths = {f"sample:{sample.name}": sample.path for sample in samples()}
    if source in paths:
        return f"{SAMPLES.name}/{paths[source].relative_to(SAMPLES).as_posix()}"
    if source.startswith(f"{history.KIND}:"):
        return f"{file_stem(shown.opened.name)}.plan.cbor"  # the page Export offers this file
    stored = shelf().get(source)
    name = stored[0] if stored is not None else shown.opened.name
    return f"./{name}" if name.startswith("-") else name  # with "./", "-x" is not read as an option


MAX_STEM_BYTES = 100  # a file name has at most 255 bytes, and may also contain an arena name


def file_stem(name: str) -> str:
    """Return a valid file name without extension for a graph's name."""
    safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    stem = safe.split(".")[0].lstrip("-").encode()[:MAX_STEM_BYTES].decode(errors="ignore")
    return f"{stem}_" if _WINDOWS_DEVICE.fullmatch(stem) else stem or "plan"


_WINDOWS_DEVICE = re.compile(r"con|prn|aux|nul|(com|lpt)[0-9¹²³]", re.I)  # device names of Windows
