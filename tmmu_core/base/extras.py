"""Import optional packages; the error about a missing package contains the command that installs it."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tmmu_core.base.errors import MissingExtra

EXTRA_OF = {
    "blake3": "draft",
    **dict.fromkeys(("dask", "distributed"), "sweep"),
    "executorch": "executorch",
    **dict.fromkeys(("onnxruntime", "sympy"), "run"),
    **dict.fromkeys(("pandas", "pyarrow"), "tables"),
    **dict.fromkeys(("plotly", "streamlit"), "app"),
    **dict.fromkeys(("psycopg", "sqlalchemy"), "store"),
    "tflite_micro": "tflm",
    "torch": "torch",
}
"""Package → the extra of this product that installs it."""
DISPLAY_NAMES = {"executorch": "ExecuTorch", "torch": "PyTorch"}  # package → its name in messages, if it differs


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'tmmu-plan-explorer[{extra}]'"


def installed(package: str) -> bool:
    """Return whether the package is installed; it is not imported."""
    try:
        return find_spec(package) is not None
    except ValueError:  # sys.modules maps the name to an object without a module spec
        return False


def missing(package: str, what: str) -> MissingExtra:
    """Return the error for a missing package. ``what`` needs the package and is the subject of the message."""
    message = f"{what} needs {DISPLAY_NAMES.get(package, package)}, which is not installed."
    command = install(EXTRA_OF[package]) if package in EXTRA_OF else f"pip install {package.replace('_', '-')}"
    return MissingExtra(message, hint=f"Add it: {command}")


def require(package: str, what: str) -> None:
    """Raise ``MissingExtra`` if a package is not installed. The package is not imported."""
    if not installed(package):
        raise missing(package, what)


def need(module: str, what: str) -> Any:
    """Import and return a module, such as ``pyarrow.parquet``. Raises ``MissingExtra`` if its package is missing."""
    package = module.partition(".")[0]
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != package:
            raise  # the package is installed; one of its dependencies is not
        raise missing(package, what) from error
