"""Every failpoint stands where the registry says, once, and nowhere else."""

import ast
from collections.abc import Iterator
from pathlib import Path

from operations.failpoints import PLACES, Failpoint

SRC = Path(__file__).parents[2] / "src"


def _placed(file: Path) -> Iterator[tuple[str, str]]:
    """Each failpoint named in a call of `fail_at`, and the function around it."""
    module = ".".join(file.relative_to(SRC).with_suffix("").parts)
    stack: list[tuple[ast.AST, tuple[str, ...]]] = [(ast.parse(file.read_text()), ())]
    while stack:
        node, names = stack.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names = (*names, node.name)
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "fail_at":
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "Failpoint":
                    yield part.attr, f"{module}:{'.'.join(names)}"
        stack.extend((child, names) for child in ast.iter_child_nodes(node))


def test_every_failpoint_stands_once_and_exactly_where_the_registry_says() -> None:
    files = [file for file in SRC.rglob("*.py") if "fail_at(" in file.read_text()]
    found = sorted(place for file in files for place in _placed(file))

    assert found == sorted((point.name, PLACES[point]) for point in Failpoint)


def test_workflows_hold_no_failpoints() -> None:
    for file in (SRC / "workflows").rglob("*.py"):
        assert "failpoints" not in file.read_text(), f"{file.name} has to be deterministic"
