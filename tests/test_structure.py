"""Limits that keep every file, class, function and folder of `live` small enough to read, and its names unambiguous."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

LIVE: Final = Path(__file__).parent.parent / "live"
MODULES: Final = sorted(LIVE.rglob("*.py"))
MAX_LINES: Final = 600
MAX_FUNCTION: Final = 60  # lines of a function without its decorators
MAX_ATTRIBUTES: Final = 15
MAX_AT_ROOT: Final = 8  # files
MAX_IN_FOLDER: Final = 20  # files


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


def full_folders(paths: Iterable[Path]) -> list[str]:
    """List the folders with too many files."""
    counts = Counter(path.parent for path in paths)
    return [f"{folder} has {count} files" for folder, count in counts.items() if count > MAX_IN_FOLDER]


def shared_names(sources: Iterable[str]) -> list[str]:
    """List the names of classes that are in more than one module."""
    found = (
        {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)} for source in sources
    )
    return sorted(name for name, count in Counter(chain.from_iterable(found)).items() if count > 1)


def test_files_functions_and_classes_are_small() -> None:
    """No file, function or class is over its limit."""
    found = {name_of(path): faults(path.read_text(encoding="utf-8")) for path in MODULES}
    assert {name: over for name, over in found.items() if over} == {}


def test_the_root_has_few_files() -> None:
    """At most `MAX_AT_ROOT` modules are directly in `live`. All others belong to a package."""
    assert len(list(LIVE.glob("*.py"))) <= MAX_AT_ROOT


def test_no_folder_is_full() -> None:
    """A folder of `live` has at most `MAX_IN_FOLDER` modules, so that it is easy to survey."""
    assert full_folders(MODULES) == []


def test_no_two_modules_have_a_class_of_the_same_name() -> None:
    """A class name alone says which class it means."""
    assert shared_names(path.read_text(encoding="utf-8") for path in MODULES) == []


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
    """`faults` finds a file, function or class over its limit, so the test of files, functions and classes can fail."""
    assert len(faults(source)) == count


def test_folders_and_names_can_exceed_their_limits() -> None:
    """A full folder and a shared name are found, so the tests of folders and names can fail."""
    assert full_folders([LIVE / f"{number}.py" for number in range(20)]) == []
    assert full_folders([LIVE / f"{number}.py" for number in range(21)]) == [f"{LIVE} has 21 files"]
    inner = "def f():\n    class A: pass\n"
    assert shared_names(["class A: pass", "class B: pass", "x = 1"]) == []
    assert shared_names(["class A: pass\nclass B: pass", inner, "class B: pass"]) == ["A", "B"]
