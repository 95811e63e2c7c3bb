"""A Chromium of 2020, as some televisions have it. Its program comes with an npm package."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect

from tests.harness.waiting import DEADLINE, eventually

_PACKED: Final = Path(__file__).parents[2] / ".tools/node_modules/chrome-aws-lambda/bin/chromium.br"
_UNPACK: Final = (
    "const [from, to] = process.argv.slice(1), fs = require('fs');"
    "fs.writeFileSync(to, require('zlib').brotliDecompressSync(fs.readFileSync(from)), {mode: 0o755})"
)
_FLAGS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0")
IS_INSTALLED: Final = _PACKED.exists() and shutil.which("node") is not None


class OldPage:
    """A page in the browser, which is driven by its DevTools protocol: Playwright needs a newer Chromium.

    `errors` has what its scripts threw.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self.errors: list[str] = []
        self._socket = socket
        self._session = ""
        self._number = 0

    async def call(self, method: str, **params: Any) -> Any:
        """Return the result of a command."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send(json.dumps({"id": self._number, "method": method, "params": params, **session}))
        while True:
            message = json.loads(await asyncio.wait_for(self._socket.recv(), DEADLINE))
            if message.get("method") == "Runtime.exceptionThrown":
                thrown = message["params"]["exceptionDetails"]
                self.errors.append(thrown.get("exception", {}).get("description") or thrown["text"])
            if message.get("id") == self._number:
                assert "error" not in message, (method, message)
                return message["result"]

    async def open(self, url: str, width: int, height: int) -> None:
        """Open a page in a window of a size."""
        if not self._session:
            target = (await self.call("Target.createTarget", url="about:blank"))["targetId"]
            attached = await self.call("Target.attachToTarget", targetId=target, flatten=True)
            self._session = attached["sessionId"]
            await self.call("Runtime.enable")
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = await self.call("Runtime.evaluate", expression=f"JSON.stringify({expression})")
        return json.loads(found["result"].get("value", "null"))


@asynccontextmanager
async def old_page(folder: Path) -> AsyncIterator[OldPage]:
    """Start the browser with its files in a folder."""
    program = folder / "chromium"
    unpacking = await asyncio.create_subprocess_exec("node", "-e", _UNPACK, str(_PACKED), str(program))
    assert await unpacking.wait() == 0
    # The browser prints its address. Its helpers can keep a pipe open for longer than a test's loop.
    printed = folder / "printed"
    with printed.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            str(program), *_FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank",
            stderr=file, start_new_session=True,
        )  # fmt: skip

    async def address() -> str | None:
        assert process.returncode is None, "the browser ended"
        found = re.search(r"ws://\S+(?=\n)", printed.read_text(encoding="utf-8"))
        return found and found[0]

    try:
        # The browser answers no ping.
        async with connect(await eventually(address), max_size=None, ping_interval=None) as socket:
            yield OldPage(socket)
            await socket.send('{"id": 0, "method": "Browser.close"}')
        await asyncio.wait_for(process.wait(), DEADLINE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        program.unlink()
