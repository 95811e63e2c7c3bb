"""Counts the tokens of each call: LIVE_KEY=… python usage.py < calls.ndjson"""

import asyncio
import json
import os
import sys

from live.client import Event, LiveBoard


async def count(live, call):
    """Call this after each response of a model. The id of the response makes each call count once."""
    tokens = call["usage"]["input_tokens"] + call["usage"]["output_tokens"]
    return await live.post(
        Event(call["user"], amount=tokens, type="tokens", id=call["id"]),
        Event(call["model"], amount=tokens, type="model", id=call["id"]),
    )


async def main():
    async with LiveBoard("http://127.0.0.1:8000", os.environ["LIVE_KEY"]) as live:
        answers = [await count(live, json.loads(line)) for line in sys.stdin]
    print(sum(a.accepted for a in answers), "counted,", sum(a.duplicate for a in answers), "counted before")


asyncio.run(main())
