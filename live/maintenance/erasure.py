"""Finds what to delete from the store and the journal when an actor is erased: the digests made from the actor.

These are the digests of a voter, and of a voter and a member, keyed by the secret of the board, and the identities of
the likes of a visitor.
"""

import math
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from itertools import product
from typing import Final, Protocol

from live.domain.event import Event, Identities
from live.domain.producer import LIKES
from live.store.board.write.plan import voter_digests

_DIGEST: Final = 16  # bytes
_VISITOR: Final = re.compile("[0-9a-f]{32}")  # how events name the visitors of pages


class Erasure(Protocol):
    """Chooses the digests that have to go."""

    def add_voted(self, members: Iterable[str]) -> None:
        """Add members that the actor may have voted for."""

    def add_liked(self, members: Iterable[str], periods: Iterable[int | None]) -> None:
        """Add members that the actor may have liked, and in which periods."""

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """The digests among `fields` that have to go, if they were stored at a time (microseconds since 1970)."""

    def remember(self, fields: Iterable[bytes]) -> None:
        """Add digests that were deleted together with others."""


class ActorErasure:
    """The digests of an actor on a board that has had some secrets.

    There is a digest of the actor with each member. So they are only searched where the digest of the actor is found.
    """

    def __init__(self, actor: str, keys: Iterable[bytes]) -> None:
        self._actor = actor
        self._keys = sorted(set(keys) - {b""})
        self.is_visitor = _VISITOR.fullmatch(actor) is not None
        self._voted: set[str] = set()
        self._liked: set[tuple[str, int | None]] = set()
        self._likes = Identities(LIKES)
        self.voters = frozenset(voter_digests(key, actor, "")[0] for key in self._keys)
        self._digests = set(self.voters)
        self.found: set[bytes] = set()

    def add_voted(self, members: Iterable[str]) -> None:
        """See `Erasure`."""
        new = set(members) - self._voted
        self._voted |= new
        self._digests.update(voter_digests(key, self._actor, member)[1] for member in new for key in self._keys)

    def add_liked(self, members: Iterable[str], periods: Iterable[int | None]) -> None:
        """See `Erasure`."""
        if not self.is_visitor:  # only the server itself makes likes, and names visitors
            return
        new = set(product(members, periods)) - self._liked
        self._liked |= new
        for member, period in new:
            event = Event(key=member, source=self._actor, id=f"{period or ''}\n{member}")
            self._digests.add(self._likes.of(event))

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """See `Erasure`. Whatever is found is remembered in `found`."""
        del time
        found = self._digests.intersection(fields)
        self.found |= found
        return found

    def remember(self, fields: Iterable[bytes]) -> None:
        """See `Erasure`."""
        deleted = set(fields)
        self._digests |= deleted
        self.found |= deleted


class RepeatedErasure:
    """The digests that were erased before. The list has a digest of each, and the time when it was erased."""

    def __init__(self, key: bytes, erased: Mapping[bytes, int]) -> None:
        self._key = key
        self._erased = erased
        self._with_others: set[bytes] = set()
        self.last = max(erased.values(), default=-math.inf)

    def add_voted(self, members: Iterable[str]) -> None:
        """See `Erasure`. Members add nothing."""

    def add_liked(self, members: Iterable[str], periods: Iterable[int | None]) -> None:
        """See `Erasure`. Members add nothing."""

    def among(self, fields: Iterable[bytes], time: int) -> set[bytes]:
        """See `Erasure`. What came after the actor was erased stays."""
        if time > self.last:
            return set()
        known, erased, key = self._with_others, self._erased, self._key
        return {field for field in fields if field in known or erased.get(hidden(key, field), -1) >= time}

    def remember(self, fields: Iterable[bytes]) -> None:
        """See `Erasure`. An older backup can have votes that no longer existed when the list was made."""
        self._with_others.update(fields)


def hidden(key: bytes, digest: bytes) -> bytes:
    """The digest of a digest, which reveals nothing without the actor and both secrets."""
    return blake2b(digest, digest_size=_DIGEST, key=key, person=b"erased").digest()
