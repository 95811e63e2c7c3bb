"""The built image, as `make image` runs it: without rights, and on a read-only file system."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from live import __version__
from tests.harness.network import free_port
from tests.test_image import UID

IMAGE: Final = os.environ.get("TEST_IMAGE")
VOLUME: Final = "var/lib/live"
# Starts a program like a container engine: it can write only to the volume and /tmp, and can't gain rights.
START: Final = """
mount --bind "$1" "$1"
mount --bind "$2" "$1/var/lib/live"
mount -t tmpfs -o mode=1777 tmp "$1/tmp"
mount --rbind /proc "$1/proc"
mount --rbind /dev "$1/dev"
mount -o remount,bind,ro "$1"
root=$1
shift 2
exec setpriv --no-new-privs --bounding-set -all,+setuid,+setgid,+sys_chroot \\
  chroot --userspec=10001:10001 --groups= "$root" "$@"
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(IMAGE is None, reason="the image is built and tested by `make image`"),
]


class Image:
    """The files of the image, its configuration, and a volume."""

    def __init__(self, root: Path, volume: Path, environment: list[str]) -> None:
        self.root = root
        self._volume = volume
        self._environment = dict(line.split("=", 1) for line in environment)

    def start(self, *command: str, **changes: str) -> "subprocess.Popen[str]":
        """Run a command in a container."""
        return subprocess.Popen(
            ["/usr/bin/unshare", "--mount", "--propagation", "private", "sh", "-euc", START, "sh",
             str(self.root), str(self._volume), *command],
            env={**self._environment, **changes}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *command: str, **changes: str) -> str:
        """Run a command that must succeed, and return what it prints."""
        process = self.start(*command, **changes)
        printed, _ = process.communicate(timeout=300)
        assert process.returncode == 0, printed
        return printed


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image, with an empty volume."""
    environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}

    def buildah(*words: str) -> str:
        command = ["buildah", *words]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()

    assert IMAGE is not None
    container = buildah("from", IMAGE)
    try:
        about = json.loads(buildah("inspect", container))["Docker"]["config"]
        root = Path(buildah("mount", container))
        assert about["User"] == f"{UID}:{UID}"
        assert about["Cmd"] == ["live", "serve"]
        assert about["Healthcheck"]
        volume = tmp_path_factory.mktemp("volume")
        # An engine copies the folder of the image, with its owner and mode, to a new volume.
        assert list((root / VOLUME).iterdir()) == []
        assert (root / VOLUME).stat().st_mode & 0o777 == 0o700
        assert ((root / VOLUME).stat().st_uid, (root / VOLUME).stat().st_gid) == (UID, UID)
        os.chown(volume, UID, UID)
        yield Image(root, volume, about["Env"])
    finally:
        buildah("rm", container)


def test_the_image_has_what_the_documentation_names(image: Image) -> None:
    """The image has the extras, a name for the user and its group, the commit, and a read-only system."""
    assert image.run("live", "--version").startswith(f"live {__version__} (")
    assert image.run("id", "-un").strip() == image.run("id", "-gn").strip() == "live"
    code = "import hdrh, psycopg, pyarrow; open('/tmp/a', 'w'); open('/var/lib/live/a', 'w')"
    image.run("python", "-c", code)
    read_only = (
        "import os; print([path for path in ('/', '/tmp', '/var/lib/live') if os.statvfs(path).f_flag & os.ST_RDONLY])"
    )
    assert image.run("python", "-c", read_only) == "['/']\n"


def test_the_image_serves(image: Image) -> None:
    """The server demands an API key, counts an event with it, and stops cleanly. Two workers use /tmp."""
    port = str(free_port())
    refused = image.start("live", "serve", LIVE_PORT=port)
    assert "no producer has an API key" in refused.communicate(timeout=120)[0]
    key = image.run("live", "keys", "add", "shop", LIVE_LOG_LEVEL="error").split()[-1]
    with image.start("live", "serve", LIVE_PORT=port, LIVE_WORKERS="2") as server:
        assert server.stdout is not None
        while "Live Board is at" not in (line := server.stdout.readline()):
            assert line, "it ended"
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=180, headers={"Authorization": f"Bearer {key}"}) as client:
            assert client.get("/readyz").status_code == 200
            assert client.post("/v1/events", json={"key": "a"}).json()["accepted"] == 1
            assert client.get("/boards/posts").status_code == 200
        status = Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8")
        assert f"Uid:\t{UID}\t{UID}\t" in status
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
