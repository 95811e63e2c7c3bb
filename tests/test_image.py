"""The container image and its composition: pinned by hash, closed by default, and with minimal rights."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parent.parent
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()
COMPOSITIONS: Final[dict[str, dict[str, Any]]] = {
    name: yaml.safe_load((ROOT / name).read_text())
    for name in ("docker-compose.yml", "compose.sentinel.yml", "compose.cluster.yml")
}
DEADLINE: Final = 150
UID: Final = 10001
EXTRAS: Final = ("load", "parquet", "postgres")
NEWEST: Final = {"python_full_version": "3.11.99"}  # the base image has the newest 3.11; older ones need more packages


def pinned(name: str) -> dict[str, list[str]]:
    """The packages of a requirements file, `name==version`, with their hashes, whatever machine they are for."""
    text = (ROOT / "image" / name).read_text().replace("\\\n", " ")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {line[0]: [word for word in line if word.startswith("--hash")] for line in lines}


def needed(name: str, extras: tuple[str, ...] = ()) -> Iterator[str]:
    """Return an installed package and everything that it needs in the image, as `name==version`."""
    found = distribution(name)
    if name != "live-board":
        yield f"{canonicalize_name(name)}=={found.version}"
    for text in found.requires or ():
        required = Requirement(text)
        if any(
            required.marker is None or required.marker.evaluate({"extra": extra, **NEWEST}) for extra in ("", *extras)
        ):
            yield from needed(required.name, tuple(required.extras))


def canonical(pins: dict[str, list[str]] | list[str]) -> set[str]:
    """Pins with the canonical name of each package."""
    return {f"{canonicalize_name(pin.partition('==')[0])}=={pin.partition('==')[2]}" for pin in pins}


def test_the_build_trusts_certificates_that_the_image_does_not_keep() -> None:
    """Only the step that downloads gets the certificates, as a secret.

    `image/build.sh` passes the certificates that pip uses on this machine.
    """
    steps = re.findall(r"^RUN (?:.*\\\n)*.*", DOCKERFILE, re.MULTILINE)
    downloading = [step for step in steps if "--require-hashes" in step]
    assert ["--mount=type=secret,id=certificates" in step for step in downloading] == [True]
    assert "--no-index" in next(step for step in steps if step.endswith(" ."))
    assert not re.search(r"^(COPY|ADD|ENV|ARG) .*cert", DOCKERFILE, re.MULTILINE | re.IGNORECASE)
    script = (ROOT / "image" / "build.sh").read_text()
    assert "certificates=${PIP_CERT:-${SSL_CERT_FILE:-}}" in script
    assert '--secret "id=certificates,src=$certificates"' in script


def test_the_image_installs_exactly_the_tested_packages() -> None:
    """The image has everything that the server needs and nothing else, in the versions of constraints.txt."""
    constraints = canonical((ROOT / "constraints.txt").read_text().split())
    assert canonical(pinned("requirements.txt")) <= constraints
    assert canonical(pinned("build.txt")) <= constraints
    assert canonical(pinned("requirements.txt")) == set(needed("live-board", EXTRAS))


@pytest.mark.parametrize("name", ["requirements.txt", "build.txt"])
def test_every_package_of_the_image_has_its_hashes(name: str) -> None:
    """Each package has one wheel, or one per architecture. The files contain no URL."""
    assert "/" not in (ROOT / "image" / name).read_text().replace("\\", "")
    for package, hashes in pinned(name).items():
        assert len(hashes) in {1, 2}, package
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", value) for value in hashes)


def test_the_image_installs_nothing_else() -> None:
    """Each call of pip checks hashes or uses no index.

    The process is not root, and the image does not set LIVE_OPEN.
    """
    calls = re.findall(r"pip install (.*?)(?:\n[A-Z]|&&)", DOCKERFILE.replace("\\\n", ""), re.DOTALL)
    assert len(calls) == 3
    assert all("--require-hashes" in call or "--no-index" in call for call in calls)
    assert re.findall(r"^USER (.*)$", DOCKERFILE, re.MULTILINE) == [f"{UID}:{UID}"]
    assert "LIVE_OPEN" not in DOCKERFILE


def test_a_service_has_minimal_rights() -> None:
    """A service can write only its volume and /tmp, has no capabilities, has limits, and does not run as root."""
    for file, name in [(file, name) for file, made in COMPOSITIONS.items() for name in made["services"]]:
        service = COMPOSITIONS[file]["services"][name]
        assert service["read_only"] is True, file
        assert service["cap_drop"] == ["ALL"], file
        assert service["security_opt"] == ["no-new-privileges:true"], file
        assert not {"cap_add", "privileged", "devices", "pid", "ipc", "network_mode"} & service.keys(), file
        assert service["tmpfs"] == ["/tmp"]  # noqa: S108 - in the container, file
        assert all(service[limit] for limit in ("mem_limit", "cpus", "pids_limit")), file
        volumes = [volume for volume in service.get("volumes", []) if not volume.endswith(":ro")]
        assert len(volumes) == (name != "join")
        for volume in volumes:
            kept = volume.partition(":")[0]
            assert kept in COMPOSITIONS[file]["volumes"], "the data is in a folder of the host, not on a volume"
        assert "build" in service or not service["user"].startswith("0"), file


@pytest.mark.parametrize("composition", COMPOSITIONS.values(), ids=COMPOSITIONS)
def test_a_composition_is_closed_by_default(composition: dict[str, Any]) -> None:
    """Only this machine reaches the board, only the board reaches the store, and events need an API key."""
    services = dict(composition["services"])
    board = services.pop("board")
    for service in services.values():
        assert "ports" not in service
        assert list(service["networks"]) == ["store"]
    assert composition["networks"]["store"]["internal"] is True
    assert all(port.startswith("127.0.0.1:") for port in board["ports"])
    assert not {"LIVE_OPEN", "LIVE_ANONYMOUS_ADMIN"} & board["environment"].keys()
    assert "*" not in str(board["environment"])


def test_the_store_syncs_and_evicts_nothing() -> None:
    """Without a sync of each write, or if it evicts keys, the store can lose acknowledged events."""
    store = COMPOSITIONS["docker-compose.yml"]["services"]["store"]
    options = dict(zip(store["command"][1::2], store["command"][2::2], strict=True))
    assert (options["--appendonly"], options["--appendfsync"], options["--maxmemory-policy"]) == (
        "yes", "always", "noeviction"
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(
    os.getuid() != 0 or not (Path("/usr/bin/unshare").exists() and shutil.which("setpriv")),
    reason="needs root to drop rights as a container does",
)
def test_it_runs_unprivileged_on_a_read_only_system() -> None:
    """The server runs two workers without capabilities, and can write only its data and temporary files."""
    with tempfile.TemporaryDirectory(prefix="live-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("data", "tmp", "python"):
            (folder / part).mkdir()
            os.chown(folder / part, UID, UID)
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                ["/usr/bin/unshare", "--mount", "--propagation", "private", "sh", "-euc", CONFINED, "sh", name,
                 sys.base_prefix, f"python{sys.version_info.major}.{sys.version_info.minor}"],
                stdout=log, stderr=log, env=confined_environment(folder),
            )  # fmt: skip
        try:
            url = address(folder / "log", server)
            assert httpx.get(f"{url}/readyz", timeout=180).status_code == 200
            assert httpx.post(f"{url}/v1/events", timeout=180, json={"key": "a"}).json()["accepted"] == 1
            assert httpx.get(f"{url}/metrics", timeout=180).status_code == 200
            status = Path(f"/proc/{server.pid}/status").read_text()
            assert re.search(rf"^Uid:\t{UID}\t{UID}\t", status, re.MULTILINE)
            assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
            assert re.search(r"^NoNewPrivs:\t1$", status, re.MULTILINE)
        finally:
            server.terminate()
            assert server.wait(DEADLINE) == 0, (folder / "log").read_text()


# The interpreter may be in a private folder, so that folder is mounted at an accessible place.
CONFINED: Final = """
mount --bind "$2" "$1/python"
for part in data tmp; do mount --bind "$1/$part" "$1/$part"; done
mount -o remount,bind,ro /
awk '$2 != "/" {print $2}' /proc/mounts | while read -r place; do
  case $place in
  "$1/data"|"$1/tmp"|/proc*|/sys*|/dev*) ;;
  *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;;
  esac
done
! touch "$1/anything" 2>/dev/null
cd "$1"
export LD_LIBRARY_PATH="$1/python/lib"
exec setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set -all --inh-caps -all \\
  "$1/python/bin/$3" -m live serve
"""


def confined_environment(folder: Path) -> dict[str, str]:
    """The environment of the confined server.

    Its paths, its port and its number of workers differ from those of the process in the image.
    """
    return {
        "PATH": os.environ["PATH"],
        "HOME": "/nowhere",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder / "tmp"),
        "LIVE_DATA_DIR": str(folder / "data" / "store"),
        "LIVE_PORT": "0",
        "LIVE_WORKERS": "2",
    }


def address(log: Path, server: "subprocess.Popen[bytes]") -> str:
    """Wait for the URL that the server prints."""
    end = time.monotonic() + DEADLINE
    while "Live Board is at " not in (text := log.read_text()):
        assert server.poll() is None, text
        assert time.monotonic() < end, text
        time.sleep(0.05)
    return text.split("Live Board is at ")[1].split("/  ")[0]
