"""A graph whose every name is an image, a link, a script, a formula or a command to the terminal."""

from itertools import pairwise

from tests.support.build import tensor
from tmmu_core.graph.model import Dim, Graph, Node


def hostile_names(address: str) -> tuple[str, ...]:
    """Return names that send a request to ``address`` if they are not treated as text."""
    return (
        f"![x]({address}/image.png)",
        f'<a href="{address}/link">here</a>',
        f'"><img src="{address}/tag.png" onerror="fetch(\'{address}/script\')">',
        f'=HYPERLINK("{address}/cell")',
        "\x1b]0;owned\x07\x1b[31mred\u202eder",
    )


def hostile_graph(names: tuple[str, ...]) -> Graph:
    """Return a graph whose tensors, nodes, operators, arenas, dimensions and own name are hostile."""
    tensors = [
        tensor(names[0], role="input"),
        *(tensor(name, arena=names[0] if k % 2 else None) for k, name in enumerate(names[1:])),
    ]
    nodes = [Node(f"n {name}", name, (before,), (name,)) for before, name in pairwise(names)]
    dims = {name: Dim(1, 4) for name in names[:2]}
    ends = {"inputs": names[:1], "outputs": names[-1:]}
    return Graph(tensors=tuple(tensors), nodes=tuple(nodes), name=names[0], dims=dims, **ends)


def hostile_to_files(address: str) -> tuple[str, ...]:
    """Return names that end comments, quotes, lines and file names, and names that send a request."""
    return (
        *hostile_names(address),
        f'*/ #include "{address}/header.h" /*',
        f"*\\ #error ended /\\* ?\\?/ {address}",
        f'"]; x [URL="{address}/dot" image="{address}/dot.png"',
        f"</text><image href=\"{address}/svg.png\"/><script>fetch('{address}/svg')</script>",
        f"]]></style><style>@import url({address}/css);",
        "../../../etc/passwd\x00\n",
    )
