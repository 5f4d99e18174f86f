"""List the places of a module at which one small change can be made, and the changes (mutants).

A mutant replaces text and keeps the line numbers. Places that cannot change a result are skipped: annotations,
docstrings, the text of f-strings, assertions, and ``strict=`` of ``zip``.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

UNTESTED_HERE = (
    "tmmu_core/formats/pytorch/joint_graph/",
    "tmmu_core/formats/pytorch/torch_module.py",
    "tmmu_core/fitting/pytorch/",
    "tmmu_core/library/torch_fit.py",
    "tmmu_core/runtime/measure/runtime_child.py",
)
"""Modules that need PyTorch, onnxruntime or LiteRT, which the tests of this environment cannot import."""
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COUNTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
CALLED = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Site:
    """A mutant: the bytes ``[start, end)`` of ``file`` are replaced by ``new``."""

    file: str
    line: int
    function: str
    """Qualified name of the function that contains the place; "" outside of functions."""
    start: int
    end: int
    old: str
    new: str

    def mutate(self, text: str) -> str:
        """Return the text of the module with this change."""
        data = text.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()


def sites_of(file: str, text: str) -> list[Site]:
    """Return every mutant of one module, sorted by place."""
    found = _Finder(file, text)
    found.visit(ast.parse(text))
    return sorted(set(found.sites), key=lambda site: (site.start, site.end, site.new))


def sites_in(root: Path, folder: str = "tmmu_core") -> list[Site]:
    """Return every mutant below a folder of the project, sorted by file and place."""
    files = sorted(path for path in (root / folder).rglob("*.py"))
    return [site for path in files for site in sites_of(path.relative_to(root).as_posix(), path.read_text())]


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, text: str) -> None:
        self.file, self.data = file, text.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.functions = [""]
        self.scope = ""
        """Prefix of the qualified names in the current function or class."""
        self.sites: list[Site] = []

    def _put(self, node: ast.expr | ast.stmt, new: str) -> None:
        """Add a mutant that replaces ``node`` by ``new`` and keeps its number of lines."""
        last = node.end_lineno or node.lineno
        start, end = self.starts[node.lineno - 1] + node.col_offset, self.starts[last - 1] + (node.end_col_offset or 0)
        old = self.data[start:end].decode()
        spare = "\n" * (last - node.lineno)
        new = f"({new}{spare})" if isinstance(node, ast.expr) else new + spare
        if old != new:
            self.sites.append(Site(self.file, node.lineno, self.functions[-1], start, end, old, new))

    def _expression(self, node: ast.expr, new: ast.expr) -> None:
        self._put(node, ast.unparse(new))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(default)  # defaults are evaluated in the outer scope
        outer, called = self.scope, self.scope + node.name
        self.functions.append(called)
        self.scope = f"{called}.<locals>."
        self._body(node.body)
        self.scope = outer
        self.functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self.scope = self.scope, f"{self.scope}{node.name}."
        self._body(node.body)
        self.scope = outer

    def _body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._put(node, "pass")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip f-strings, because their text is only in messages."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Skip assertions, because their condition is always true."""

    def visit_Import(self, node: ast.Import) -> None:
        """Skip a node that has no mutants."""

    visit_ImportFrom = visit_Import  # type: ignore[assignment]  # noqa: N815

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call) and "." in ast.unparse(node.value.func):
            self._put(node, "pass")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        self._expression(node.test, ast.UnaryOp(ast.Not(), node.test))
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._expression(node.test, ast.UnaryOp(ast.Not(), node.test))
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._put(node, "break")

    def visit_Break(self, node: ast.Break) -> None:
        self._put(node, "continue")

    def visit_Compare(self, node: ast.Compare) -> None:
        for k, op in enumerate(node.ops):
            ops = [*node.ops[:k], COMPARED[type(op)](), *node.ops[k + 1 :]]
            self._expression(node, ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for k in range(len(node.values)):
            rest = [*node.values[:k], *node.values[k + 1 :]]
            self._expression(node, rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            self._expression(node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        texts = any(isinstance(side, ast.Constant | ast.JoinedStr) and not _number(side) for side in _sides(node))
        annotation = isinstance(node.op, ast.BitOr) and any(ast.unparse(s) == "None" for s in _sides(node))
        if type(node.op) in COUNTED and not texts and not annotation:
            self._expression(node, ast.BinOp(node.left, COUNTED[type(node.op)](), node.right))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in COUNTED and node.lineno == node.end_lineno:
            self._put(node, ast.unparse(ast.AugAssign(node.target, COUNTED[type(node.op)](), node.value)))
        self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in CALLED:
            other = CALLED[name]
            func = ast.Attribute(node.func.value, other) if isinstance(node.func, ast.Attribute) else ast.Name(other)
            self._put(node.func, ast.unparse(func))
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._put(node, str(not node.value))
        elif isinstance(node.value, int):
            self._put(node, str(node.value + 1))

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.value, ast.Name) or node.value.id not in ("tuple", "list", "dict", "Callable", "set"):
            self.generic_visit(node)


def _sides(node: ast.BinOp) -> tuple[ast.expr, ast.expr]:
    return node.left, node.right


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def drawn_from(sites: list[Site], count: int, seed: int) -> list[Site]:
    """Return ``count`` different random mutants; a smaller ``count`` returns the first of them.

    A mutant is drawn by its function and its change, not by its position in the file. A seed returns the same mutants
    until their functions change, even if other code is added or files are moved.
    """
    met: Counter[tuple[str, ...]] = Counter()
    keyed = []
    for site in sites:
        what = (site.file.rsplit("/", 1)[-1], site.function, site.old, site.new)
        text = "\n".join((f"mutants/{seed}", *what, str(met[what])))
        met[what] += 1
        keyed.append((sha256(text.encode()).digest(), site))
    keyed.sort(key=lambda pair: (pair[0], pair[1].file, pair[1].start))
    return [site for _, site in keyed[:count]]
