"""The package as a user gets it: a wheel in an empty environment serves a page with all its files."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from live import __version__
from live.web.http.static import ENTRIES
from tests.harness.server import ServerProcess
from tests.harness.settings import fresh_settings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


def run(*command: str) -> None:
    """Run a command that must succeed."""
    environment = {**os.environ, "PIP_NO_COMPILE": "1"}  # only what runs is compiled, when it runs
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_contains_everything_and_nothing_else(wheel: Path) -> None:
    """Scripts, static files and templates are inside; tests and benchmarks are not."""
    names = set(zipfile.ZipFile(wheel).namelist())

    for folder, pattern in (("live", "**/*.py"), ("live", "**/*.lua"), ("static", "**/*.*"), ("templates", "**/*.*")):
        for path in (ROOT / folder).glob(pattern):
            inside = path.relative_to(ROOT).as_posix()
            assert (inside if folder == "live" else f"live/{inside}") in names
    assert "live/py.typed" in names
    assert not [name for name in names if not name.startswith(("live/", f"live_board-{__version__}.dist-info/"))]


@pytest.mark.timeout(300)
def test_an_empty_environment_serves_the_page(wheel: Path, valkey_url: str, tmp_path: Path) -> None:
    """Installed as in the image, every package with its hash, the server has the page and each file that it uses."""
    venv.create(tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python))
    install = (*pip, "install", "--quiet", "--no-deps")
    run(*install, "--require-hashes", "--only-binary", ":all:", "-r", str(ROOT / "image" / "requirements.txt"))
    run(*install, str(wheel))
    run(*pip, "check")
    server = ServerProcess(fresh_settings(valkey_url), tmp_path, python=str(python))
    server.start()
    with httpx.Client(base_url=server.url) as client:
        page = client.get("/boards/posts")
        files = re.findall(r'(?:href|src)="(/static/[^"]+)"', page.text)
        script = next(file for file in files if file.endswith("en/board.js"))
        scripts = [path.relative_to(ROOT / "static").as_posix() for path in (ROOT / "static").rglob("*.js")]
        files += [script.replace("en/board.js", name) for name in (*scripts, *ENTRIES)]
        assert page.status_code == 200
        assert {client.get(file).status_code for file in files} == {200}
        assert client.post("/v1/events", json={"key": "a"}).json()["accepted"] == 1
    assert server.stop() == 0
