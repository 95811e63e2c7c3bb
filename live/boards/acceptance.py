"""Accepting a loss of data, when an operator says so: the boards go on with what the store holds."""

import hashlib
import secrets
from collections.abc import Mapping
from contextlib import suppress

import msgspec
import structlog

from live.boards.definition import DefinitionError, read_board
from live.domain.board import Boards
from live.errors import StoreUnavailableError
from live.store.board.beginnings import create, renew
from live.store.board.keys import Keys
from live.store.connection.client import Store
from live.store.connection.loss import LossWatch
from live.store.registry.definitions import Definition, DefinitionStore
from live.store.registry.producers import ProducerStore

log = structlog.get_logger()


async def accept_loss(client: Store, prefix: str, in_file: Boards, watch: LossWatch, reason: str) -> None:
    """Take the store as it is, and remember that an operator has said so.

    Every board gets another epoch, so that no viewer, page or cursor of the old life is taken for one of the new life.
    A board made at run time that is defined and holds nothing begins anew. Whether API keys are required stays as it
    was.

    Raises:
        StoreUnavailableError: the store is away. The loss is not accepted then; the same command goes on.
    """
    known, before = client.witness.describe(), client.witness.facts
    salt = f"{before.store}:{len(before.accepted)}"
    with client.witness.accepting(reason):
        await watch.find()  # meets the store
        for board in in_file.by_id:
            await renew(client, Keys(prefix, board), secrets.token_hex(4))
        definitions = DefinitionStore(client, prefix)
        held = (await definitions.load()).boards
        for board, definition in held.items():
            if definition.state == "live":
                await _go_on(client, prefix, definitions, board, _renewed(definition, held, salt))
        await definitions.load()
        await ProducerStore(client, prefix).load()
    log.warning("the loss of data was accepted", reason=reason, known=known, record=str(client.witness.path))
    log.warning("the store may hold API keys that were revoked after it was copied: check them with `live keys list`")


def _renewed(definition: Definition, held: Mapping[str, Definition], salt: str) -> Definition:
    """A definition with another epoch, and a union with the new epochs of its parts.

    The same epoch follows from the same one: a union knows its parts again after an acceptance that was cut off.
    """
    parts = {
        part: _next_epoch(held[part].epoch, salt)
        if part in held and held[part].epoch in (epoch, _next_epoch(epoch, salt))
        else epoch
        for part, epoch in definition.parts.items()
    }
    return msgspec.structs.replace(definition, epoch=_next_epoch(definition.epoch, salt), parts=parts)


def _next_epoch(epoch: str, salt: str) -> str:
    return hashlib.blake2b(f"{salt}:{epoch}".encode(), digest_size=4).hexdigest()


async def _go_on(client: Store, prefix: str, definitions: DefinitionStore, board: str, changed: Definition) -> None:
    """Give a board made at run time another life, in its definition first: what differs from that is not served."""
    found = await definitions.load()
    if await definitions.keep(found.version, board, changed, None) is None:
        raise StoreUnavailableError(
            "another process changes boards: stop all servers that use the store, and try again"
        )
    keys = Keys(prefix, board)
    if not await renew(client, keys, changed.epoch):
        with suppress(DefinitionError):  # made by a later version of the server
            await create(client, keys, read_board(board, changed.choices), changed.epoch)
