"""What has to go from the store and the journal when an actor is erased: digests in which the actor has a part.

These are the digests of a voter, and of a voter and a member, keyed by the secret of the board, and the identities of
the likes of a visitor.
"""

import math
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final, Protocol

from live.domain.event import Event, Identities
from live.domain.producer import LIKES
from live.store.board.plan import voter_digests

_DIGEST: Final = 16  # bytes


class Doomed(Protocol):
    """Tells which digests have to go."""

    def meet(self, members: Iterable[str], periods: Iterable[int | None] = (None,)) -> None:
        """Learn of members that the actor may have voted for or liked, and in which periods."""

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """Those of some digests that have to go, if they were stored at a time (microseconds since 1970)."""


class DoomedActor:
    """The digests of an actor on a board that has had some secrets."""

    def __init__(self, actor: str, keys: Iterable[bytes]) -> None:
        self._actor = actor
        self._keys = sorted(set(keys) - {b""})
        self._known: dict[str, set[int | None]] = {}
        self._likes = Identities(LIKES)
        self._digests = {voter_digests(key, actor, "")[0] for key in self._keys}
        self.voters = frozenset(self._digests)
        self.found: set[bytes] = set()

    def meet(self, members: Iterable[str], periods: Iterable[int | None] = (None,)) -> None:
        """See `Doomed`."""
        wanted = list(periods)
        for member in members:
            known = self._known.get(member)
            if known is None:
                known = self._known[member] = set()
                self._digests.update(voter_digests(key, self._actor, member)[1] for key in self._keys)
            for period in wanted:
                if period not in known:
                    known.add(period)
                    event = Event(key=member, source=self._actor, id=f"{period or ''}\n{member}")
                    self._digests.add(self._likes.of(event))

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """See `Doomed`. Whatever is found is remembered in `found`."""
        del time
        found = self._digests.intersection(fields)
        self.found |= found
        return found


class DoomedAgain:
    """The digests that were erased before, by their own digests, and when."""

    def __init__(self, key: bytes, erased: Mapping[bytes, int]) -> None:
        self._key = key
        self._erased = erased
        self.last = max(erased.values(), default=-math.inf)

    def meet(self, members: Iterable[str], periods: Iterable[int | None] = (None,)) -> None:
        """See `Doomed`. Members tell nothing more."""

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """See `Doomed`. What came after the actor was erased stays."""
        if time > self.last:
            return set()
        return {field for field in fields if self._erased.get(hidden(self._key, field), -1) >= time}


def hidden(key: bytes, digest: bytes) -> bytes:
    """The digest of a digest, which tells nothing to those who do not know the actor and both secrets."""
    return blake2b(digest, digest_size=_DIGEST, key=key, person=b"erased").digest()
