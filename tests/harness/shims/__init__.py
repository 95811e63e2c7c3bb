"""Small C libraries that a process loads first: they simulate power cuts, or move its clock."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

_SOURCES: Final = Path(__file__).parent
_SYNCED: Final = (".aof", ".rdb", ".manifest", ".db", ".db-wal", ".db-shm")


def has_compiler() -> bool:
    """Whether the libraries can be built."""
    return shutil.which("cc") is not None


def _built(name: str, folder: Path) -> Path:
    library = folder / f"{name}.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCES / f"{name}.c"), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return library


class Power:
    """The power supply of all processes that run with `environment` and keep their files in one folder.

    `lose` removes everything that was not synced. Call `lose` after the processes were killed.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        """`root` holds the files, and `folder` is for the library and for copies of what was synced."""
        self._root = root
        self._copies = folder / "synced"
        self._copies.mkdir()
        self.environment = {
            "LD_PRELOAD": str(_built("power", folder)), "POWER_ROOT": f"{root}/", "POWER_COPY": str(self._copies)
        }  # fmt: skip

    def lose(self) -> None:
        """Restore every file of a store or a database to its synced content."""
        for path in [path for path in self._root.rglob("*") if path.name.endswith(_SYNCED)]:
            copy = self._copies / str(path).replace("/", "%")
            # A file that was never synced keeps its name and loses its content.
            path.write_bytes(copy.read_bytes() if copy.exists() else b"")

    def has_synced(self, content: bytes) -> bool:
        """Whether the store has synced this content."""
        return any(content in path.read_bytes() for path in self._copies.glob("*.aof"))


class Clock:
    """The wall clock of all processes that run with `environment`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._file.write_text("0")
        self.environment = {"LD_PRELOAD": str(_built("clock", folder)), "CLOCK_FILE": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Set the clock to the true time plus `seconds`."""
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._file)
