"""Limits that keep every file, class and function of `live` small enough to read."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

LIVE: Final = Path(__file__).parent.parent / "live"
MODULES: Final = sorted(LIVE.rglob("*.py"))
MAX_LINES: Final = 600
MAX_FUNCTION: Final = 60  # lines, without decorators
MAX_ATTRIBUTES: Final = 15
MAX_AT_ROOT: Final = 8  # files


def name_of(path: Path) -> str:
    """The path of a module below `live`."""
    return path.relative_to(LIVE).as_posix()


def too_long(tree: ast.Module) -> Iterator[str]:
    """Functions with too many lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > MAX_FUNCTION:
                yield f"{node.name} has {lines} lines"


def attributes_of(node: ast.ClassDef) -> set[str]:
    """The attributes that the methods of a class set on `self`."""
    return {
        found.attr
        for found in ast.walk(node)
        if isinstance(found, ast.Attribute)
        and isinstance(found.ctx, ast.Store)
        and isinstance(found.value, ast.Name)
        and found.value.id == "self"
    }


def too_wide(tree: ast.Module) -> Iterator[str]:
    """Classes with too many attributes.

    Fields of declared structs are not counted: a struct of settings has as many as there are settings.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and len(attributes := attributes_of(node)) > MAX_ATTRIBUTES:
            yield f"{node.name} has {len(attributes)} attributes"


def faults(source: str) -> list[str]:
    """Everything in a module that is over a limit."""
    lines, tree = source.count("\n"), ast.parse(source)
    return [*([f"{lines} lines"] if lines > MAX_LINES else []), *too_long(tree), *too_wide(tree)]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_functions_and_classes_are_small(path: Path) -> None:
    """Nothing is over a limit."""
    assert faults(path.read_text(encoding="utf-8")) == []


def test_the_root_has_few_files() -> None:
    """Everything else belongs to a package."""
    assert len(list(LIVE.glob("*.py"))) <= MAX_AT_ROOT


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("x = 1\n" * 601, 1),
        ("def f():\n" + "    pass\n" * 60, 1),
        ("class C:\n    def f(self):\n" + "".join(f"        self.a{i} = 1\n" for i in range(16)), 1),
        ("class C:\n    def f(self):\n" + "".join(f"        self.a{i} = 1\n" for i in range(15)), 0),
    ],
    ids=["a long file", "a long function", "a wide class", "a class at the limit"],
)
def test_each_limit_can_be_exceeded(source: str, count: int) -> None:
    """The tests above can fail."""
    assert len(faults(source)) == count
