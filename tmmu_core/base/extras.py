"""Import optional packages; if a package is missing, the error has the command that installs its extra."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tmmu_core.base.errors import MissingExtra

EXTRA_OF = {
    "blake3": "draft",
    "dask": "sweep",
    "distributed": "sweep",
    "executorch": "executorch",
    "onnxruntime": "run",
    "pandas": "tables",
    "plotly": "app",
    "psycopg": "store",
    "pyarrow": "tables",
    "sqlalchemy": "store",
    "streamlit": "app",
    "sympy": "run",
    "tflite_micro": "tflm",
    "torch": "torch",
}
"""Package → the extra of this product that installs it."""

CALLED = {"executorch": "ExecuTorch", "torch": "PyTorch"}
"""Package → its name in messages."""


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'tmmu-plan-explorer[{extra}]'"


def installed(package: str) -> bool:
    """Return whether the package is installed; it is not imported."""
    return find_spec(package) is not None


def missing(package: str, what: str, source: str = "") -> MissingExtra:
    """Return the error for a missing package with the command that installs it; ``what`` begins the sentence."""
    message = f"{what} needs {CALLED.get(package, package)}, which is not installed."
    return MissingExtra(message, source=source, hint=f"Add it: {install(EXTRA_OF[package])}")


def require(package: str, what: str) -> None:
    """Raise ``MissingExtra`` if a package is not installed; does not import it."""
    if not installed(package):
        raise missing(package, what)


def need(package: str, what: str, source: str = "") -> Any:
    """Import and return a module; the first part of a dotted name (``pyarrow.parquet``) is the package.

    Raises ``MissingExtra`` if it is not installed.
    """
    top = package.partition(".")[0]
    try:
        return import_module(package)
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != top:
            raise  # the package is installed, and a package that it needs is not
        raise missing(top, what, source) from error
