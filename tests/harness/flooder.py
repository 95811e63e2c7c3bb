"""A producer that sends as fast as it can, in its own process. It prints the answers that it received, as JSON."""

import asyncio
import sys
import time
from collections import Counter
from typing import Final
from urllib.parse import urlsplit

import msgspec

BODY: Final = b'{"key":"flood"}'


async def flood(url: str, key: str, seconds: float, statuses: Counter[str], heads: list[str]) -> None:
    """Post likes on one connection, and keep the head of the first refusal."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    head = f"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        writer.write(request)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = answer.split(" ", 2)[1]
        length = next(int(line[15:]) for line in answer.split("\r\n") if line.startswith("content-length:"))
        await reader.readexactly(length)
        statuses[status] += 1
        if status == "429" and not heads:
            heads.append(answer)
    writer.close()


async def main(url: str, key: str, seconds: float, connections: int) -> None:
    """Flood over several connections."""
    print("begun", flush=True)  # noqa: T201 - the parent waits for it
    statuses, heads = Counter[str](), list[str]()
    await asyncio.gather(*(flood(url, key, seconds, statuses, heads) for _ in range(connections)))
    sys.stdout.buffer.write(msgspec.json.encode({"statuses": statuses, "heads": heads}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))
