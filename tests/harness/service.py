"""Units of systemd, run as on a machine of an operator: their user can write only the directories of the service.

There is no systemd in tests. A namespace of mounts takes its place: `/opt` and `/var/lib` are folders of the test,
homes are hidden, and everything else is read-only.
"""

import compileall
import os
import re
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Final, Self

import httpx

from live import __version__
from tests.harness.disk import may_mount
from tests.harness.mutation import mutated
from tests.harness.waiting import DEADLINE

ROOT: Final = Path(__file__).parents[2]
OPS: Final = ROOT / "ops"
DATA: Final = "/var/lib/live-board"
BACKUPS: Final = "/var/lib/live-board-backups"
MAY_RUN: Final = os.getuid() == 0 and may_mount() and shutil.which("setpriv") is not None
LIVE: Final = "/opt/live-board/bin/live"

_DESCRIPTORS: Final = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
_FIRST_USER: Final = 61_184  # systemd takes dynamic users from here on
_MOUNT: Final = """
opt=$1 lib=$2; shift 2
mount -t tmpfs none /mnt
mkdir /mnt/opt /mnt/lib
mount --bind "$opt" /mnt/opt
mount --rbind "$lib" /mnt/lib
number=0
for kept; do
  number=$((number + 1)); mkdir /mnt/$number; mount --bind "$kept" /mnt/$number
done
for hidden in /home /root /tmp; do mount -t tmpfs -o mode=755 none $hidden; done
mount --bind /mnt/opt /opt
mount --rbind /mnt/lib /var/lib
number=0
for kept; do
  number=$((number + 1)); mkdir -p "$kept"; mount --bind /mnt/$number "$kept"
done
chmod 1777 /tmp
awk '{print $2}' /proc/mounts | while read -r place; do
  case $place in
  /tmp|/var/lib|/var/lib/*|/mnt|/mnt/*|/proc*|/sys*|/dev*) ;;
  *) mount -o remount,bind,ro "$place" 2>/dev/null || true ;;
  esac
done
! touch /opt/anything 2>/dev/null
echo ready
exec cat
"""
# A unit has only its own directories of the state, and can write nothing else.
_STATE: Final = """
names=$1; shift
for name in $names; do
  mkdir -p "/mnt/state/$name"; mount --bind "/var/lib/private/$name" "/mnt/state/$name"
done
mount -o remount,bind,ro /var/lib
mount -t tmpfs -o mode=755 none /var/lib/private
for name in $names; do
  mkdir "/var/lib/private/$name"; mount --bind "/mnt/state/$name" "/var/lib/private/$name"
done
exec "$@"
"""
_AS_THIRD: Final = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.execvp(sys.argv[2], sys.argv[2:])"
# `LISTEN_PID` is the id of the process that takes the socket.
_TAKE: Final = 'test -z "$LISTEN_FDS" || export LISTEN_PID=$$; exec "$@"'


class Unit:
    """A unit file of `ops`."""

    def __init__(self, name: str, changes: Mapping[str, str] | None = None) -> None:
        """Read the file. `changes` are mistakes in it."""
        self.name = name
        self.text = mutated((OPS / name).read_text(encoding="utf-8"), changes or {})

    def __getitem__(self, name: str) -> list[str]:
        """The values of a name, in their order."""
        return re.findall(rf"^{name}=(.*)$", self.text, re.MULTILINE)

    def commands(self, name: str) -> list[list[str]]:
        """The commands of a name, in words. systemd writes `$` and `%` twice."""
        return [[word.replace("$$", "$").replace("%%", "%") for word in shlex.split(line)] for line in self[name]]


SERVICE: Final = Unit("live-board.service")
SOCKET: Final = Unit("live-board.socket")
BACKUP: Final = Unit("live-board-backup.service")


class Host:
    """A machine with Live Board in `/opt/live-board`, and with a user for its service."""

    def __init__(self, folder: Path, number: int = 0) -> None:
        """Make the folders of a machine. Each number has another user."""
        self.user = _FIRST_USER + number
        self.opt, self.lib = folder / "opt", folder / "lib"
        self.settings: dict[str, str] = {}
        """The content of `/etc/live-board.env`, which systemd reads as root."""
        self.key = ""
        self.url = ""
        self._installed = 0
        self.log = folder / "log"
        self.preloaded: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None
        for path in (folder, self.opt, self.lib):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        (self.lib / "private").mkdir(mode=0o700, exist_ok=True)
        self._listener: socket.socket | None = None
        self._namespace: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Install the present version, and make the namespace and the socket of the service."""
        self.install()
        self.switch()
        kept = [str(ROOT), sys.prefix, sys.base_prefix]
        command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _MOUNT, "sh"]
        self._namespace = subprocess.Popen(
            [*command, str(self.opt), str(self.lib), *kept], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._namespace.stdout is not None
        assert self._namespace.stdout.readline() == b"ready\n"
        self.open_socket()
        return self

    def __exit__(self, *_: object) -> None:
        """End the service and the namespace."""
        assert self._namespace is not None
        try:
            if self.process is not None and self.process.poll() is None:
                self.stop()
        finally:
            self.close_socket()
            self._namespace.communicate(timeout=DEADLINE)

    def install(self, version: str = __version__, changes: Mapping[str, Mapping[str, str]] | None = None) -> str:
        """Install a version beside the others, and return its program. `changes` are mistakes in its files."""
        self._installed += 1
        folder = self.opt / f"live-board-{self._installed}"
        program = folder / "bin" / "live"
        program.parent.mkdir(parents=True)
        lib = str(ROOT)
        if version != __version__ or changes:
            lib = f"/opt/{folder.name}/lib"
            self._copy(folder / "lib", version, changes or {})
        program.write_text(f'#!/bin/sh\nPYTHONPATH={lib} exec {sys.executable} -m live "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        return f"/opt/{folder.name}/bin/live"

    def switch(self) -> None:
        """Let the service start the version that was installed last: `ln -sfn live-board-2 /opt/live-board`."""
        new = self.opt / "new"
        new.symlink_to(f"live-board-{self._installed}")
        new.replace(self.opt / "live-board")

    def change(self, changes: Mapping[str, Mapping[str, str]]) -> None:
        """Let the service start a version with mistakes in its files."""
        self.install(changes=changes)
        self.switch()

    @staticmethod
    def _copy(lib: Path, version: str, changes: Mapping[str, Mapping[str, str]]) -> None:
        """Copy this checkout, with another version and with mistakes."""
        for source, target in (("live", "live"), ("static", "live/static"), ("templates", "live/templates")):
            shutil.copytree(ROOT / source, lib / target)
        about = {f'__version__ = "{__version__}"': f'__version__ = "{version}"'}
        for name, mistakes in {"live/__init__.py": about, **changes}.items():
            path = lib / name
            path.write_text(mutated(path.read_text(encoding="utf-8"), mistakes), encoding="utf-8")
        assert compileall.compile_dir(lib, quiet=2)

    def open_socket(self, port: int = 0) -> None:
        """Listen as the socket unit says, but at another port, because a server of this machine may use that one."""
        (address,), (backlog,) = SOCKET["ListenStream"], SOCKET["Backlog"]
        self._listener = socket.create_server((address.split(":")[0], port), backlog=int(backlog))
        found: int = self._listener.getsockname()[1]
        self.settings["LIVE_PORT"] = str(found)  # the server ignores it, and `live serve --check` looks at it
        self.url = f"http://127.0.0.1:{found}"

    def close_socket(self) -> int:
        """Listen no longer. Return the port."""
        assert self._listener is not None
        port: int = self._listener.getsockname()[1]
        self._listener.close()
        return port

    def start(self, unit: Unit = SERVICE) -> None:
        """Start the service, and wait until it tells that it is ready, as `systemctl start` does."""
        assert self._listener is not None
        (command,) = unit.commands("ExecStart")
        address, listener = f"live-{os.getpid()}-{self._listener.fileno()}", self._listener.fileno()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices, self.log.open("ab") as log:
            notices.bind(f"\0{address}")
            notices.settimeout(0.1)
            told = {"NOTIFY_SOCKET": f"@{address}", "LISTEN_FDS": "1"}
            self.process = subprocess.Popen(
                [sys.executable, "-c", _AS_THIRD, str(listener), *self._words(unit, command)],
                env=self._environment(unit) | told | self.preloaded,
                pass_fds=[listener], umask=self._umask(unit), stdout=log, stderr=log,
            )  # fmt: skip

            self._await_notice(notices)

    def _await_notice(self, notices: socket.socket) -> None:
        """Wait until the service is ready. A mutant that does not start is not caught, so this is no assertion."""
        assert self.process is not None
        end = time.monotonic() + DEADLINE
        while self.process.poll() is None and time.monotonic() < end:
            with suppress(TimeoutError):
                if notices.recv(64) == b"READY=1":
                    return
        raise RuntimeError(self.log.read_text(encoding="utf-8"))

    def stop(self) -> None:
        """Stop the service, as `systemctl stop` does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(DEADLINE) == 0, self.log.read_text(encoding="utf-8")

    def run(self, *words: str, as_root: bool = False, unit: Unit = SERVICE) -> subprocess.CompletedProcess[str]:
        """Run a program with the settings and the directories of a unit as its user, or as root."""
        command = self._entered(words) if as_root else self._words(unit, words)
        return self._ended(command, self._environment(unit), 0o022)

    def run_unit(self, unit: Unit) -> subprocess.CompletedProcess[str]:
        """Run a unit of `Type=oneshot`. The commands after the first one that fails do not run."""
        assert unit["Type"] == ["oneshot"]
        for command in chain.from_iterable(map(unit.commands, ("ExecStartPre", "ExecStart", "ExecStartPost"))):
            done = self._ended(self._words(unit, command), self._environment(unit), self._umask(unit))
            if done.returncode:
                break
        return done

    def add_key(self) -> None:
        """Make the API key of `client`."""
        done = self.run(LIVE, "keys", "add", "chief", "--verbs", "post,admin")
        assert done.returncode == 0, done.stderr
        self.key = done.stdout.strip()

    def client(self) -> httpx.Client:
        """A client with an admin API key."""
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=180)

    def outside(self, path: str) -> Path:
        """Where the test finds a path that the service has below `/var/lib`."""
        return (self.lib / Path(path).relative_to("/var/lib")).resolve()

    def _ended(self, command: list[str], environment: dict[str, str], umask: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=environment | self.preloaded, umask=umask, capture_output=True, text=True, check=False,
            timeout=DEADLINE,
        )  # fmt: skip

    def _words(self, unit: Unit, command: "list[str] | tuple[str, ...]") -> list[str]:
        """Return a command that drops the rights that the unit takes away."""
        self._make_directories(unit)
        assert (unit["NoNewPrivileges"], unit["CapabilityBoundingSet"]) == (["yes"], [""])
        drop = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        most = [f"--nofile={min(int(limit), _DESCRIPTORS)}" for limit in unit["LimitNOFILE"]]
        user = [f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
        own = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _STATE, "sh", *unit["StateDirectory"]]
        return self._entered([*own, "prlimit", *most, "setpriv", *user, *drop, "sh", "-c", _TAKE, "sh", *command])

    def _entered(self, command: "list[str] | tuple[str, ...]") -> list[str]:
        assert self._namespace is not None
        return ["nsenter", f"--mount=/proc/{self._namespace.pid}/ns/mnt", "--", *command]

    def _environment(self, unit: Unit) -> dict[str, str]:
        """Return the environment, in which the settings of the file replace those of the unit."""
        assert unit["EnvironmentFile"] == ["-/etc/live-board.env"]
        given = dict(assignment.split("=", 1) for assignment in unit["Environment"])
        return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} | given | self.settings

    def _make_directories(self, unit: Unit) -> None:
        """Make the directories of the state as systemd does: it takes a directory of another user over."""
        (names,), (mode,) = unit["StateDirectory"], unit["StateDirectoryMode"]
        for name in names.split():
            path, link = self.lib / "private" / name, self.lib / name
            if link.is_dir() and not link.is_symlink():
                link.rename(path)
            if not link.is_symlink():
                link.symlink_to(f"private/{name}")
            path.mkdir(exist_ok=True)
            path.chmod(int(mode, 8))
            if path.stat().st_uid != self.user:
                for each in (path, *path.rglob("*")):
                    os.chown(each, self.user, self.user, follow_symlinks=False)

    @staticmethod
    def _umask(unit: Unit) -> int:
        (text,) = unit["UMask"]
        return int(text, 8)


@contextmanager
def host(folder: Path, number: int = 0, boards: str = "") -> Iterator[Host]:
    """Run a machine that has an admin API key, made as its user, and a boards file, if that is not empty."""
    with Host(folder, number) as made:
        if boards:
            (made.opt / "boards.toml").write_text(boards, encoding="utf-8")
            made.settings["LIVE_BOARDS"] = "/opt/boards.toml"
        made.add_key()
        yield made
