"""Sample likes, so that new users see a live board with a history."""

import asyncio
import math
import random
import time
from contextlib import suppress
from hashlib import blake2b
from typing import Final

from live.domain.event import Entry, make_entry
from live.errors import EpochLostError, ProblemError, StoreUnavailableError
from live.ingest.committer import Committer
from live.store.board.read.reader import BoardReader
from live.store.registry.processes import ProcessLease

POSTS: Final = (
    "A lighthouse in the fog", "Bread without kneading", "Twelve birds of the marsh", "The last steam ferry",
    "How to fold a crane", "Night train to Lisbon", "A garden on a balcony", "Three chords, forty songs",
    "The map of all wells", "Winter swimming, day one", "An owl in the attic", "Repairing a 1962 radio",
    "Ink from oak galls", "The quietest street in town", "A bridge made of rope", "Clouds, named and drawn",
    "Soup for twenty", "The chess club at midnight", "Seven ways to tie a boat", "A letter found in a book",
    "Northern lights, no filter", "The baker's day off", "Stones that ring", "A kite for strong wind",
    "Walking the old border", "Jam from green tomatoes", "The clockmaker's window", "A fox on the tram",
    "Small waves, big board", "Twenty years of one tree",
)  # fmt: skip

_PAUSE: Final = 0.15  # seconds between two rounds
_WAIT: Final = 1.0  # seconds between two checks whether another process still sends them
_RECONSIDER: Final = 40  # rounds after which another post becomes a favourite
_LEAST: Final = 0.3  # the weight of every post, so that each place of the board moves every few seconds
_UNLIKE: Final = 0.06  # probability that a recent like is taken back
_HOURS: Final = 24  # of history
_LIKES: Final = 60  # an hour and post, on average


async def send_likes(reader: BoardReader, committer: Committer, lease: ProcessLease) -> None:
    """Send about twenty likes per second while this process holds the lease.

    An empty board first gets the likes of a day. The favourite posts change, so that records overtake each other. Some
    likes are taken back.
    """
    # The likes of the history have identities. If several processes send the history, it counts once. If it can't be
    # sent, the later likes fill the board as well.
    with suppress(StoreUnavailableError, EpochLostError, ProblemError):
        if not (await reader.read(1)).rank_count:
            await committer.commit(make_history(time.time()))
    chance = random.Random()  # noqa: S311 - sample data, not a secret
    weights = [_LEAST + 1 / rank for rank in range(1, len(POSTS) + 1)]
    chance.shuffle(weights)
    last: str | None = None
    round_number = 0
    while True:
        is_held = False
        with suppress(StoreUnavailableError):
            is_held = await lease.take()
        if not is_held:
            await asyncio.sleep(_WAIT)
            continue
        round_number += 1
        if round_number % _RECONSIDER == 0:
            weights[chance.randrange(len(weights))] = 2.0
            weights = [weight * 0.8 + 0.2 * _LEAST for weight in weights]
        likes = [make_entry(key) for key in chance.choices(POSTS, weights, k=chance.randint(2, 5))]
        if last is not None and chance.random() < _UNLIKE:
            likes.append(make_entry(last, -1))
        last = likes[0][0]
        try:
            await committer.commit(likes)
        except (StoreUnavailableError, EpochLostError, ProblemError):
            last = None  # not counted, so there is nothing to take back
        await asyncio.sleep(_PAUSE)


def make_history(now: float) -> list[Entry]:
    """Make likes for each post and past hour: posts have their own popularity and their own time of the day."""
    entries = []
    for post in POSTS:
        chance = random.Random(post)  # noqa: S311 - the same in every process
        popularity, best = chance.uniform(0.9, 1.1), chance.uniform(0, 24)
        for hours in range(1, _HOURS + 1):
            at = math.floor(now / 3600) - hours
            wave = 1 + 0.8 * math.cos((at % 24 - best) / 24 * math.tau)
            identity = blake2b(f"demo {post} {at}".encode(), digest_size=16).digest()
            noise = random.Random(f"{post} {at}").uniform(0.7, 1.3)  # noqa: S311
            amount = max(1, round(_LIKES * popularity * wave * noise))
            entries.append(make_entry(post, amount, at * 3_600_000 + 1_800_000, identity))
    return entries
