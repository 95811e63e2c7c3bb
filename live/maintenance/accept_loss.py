"""Accept a loss of data when an operator asks for it: the boards continue with the data in the store."""

import hashlib
import secrets
from contextlib import suppress

import msgspec
import structlog

from live.boards.definition import DefinitionError, read_board
from live.domain.board import Boards
from live.errors import StoreUnavailableError
from live.store.board.keys import Keys
from live.store.board.manage.lifecycle import create, renew
from live.store.connection.client import Store
from live.store.connection.loss import Losses, LossWatch
from live.store.registry.definitions import DefinitionStore

log = structlog.get_logger()


async def accept_loss(client: Store, prefix: str, in_file: Boards, watch: LossWatch, losses: Losses) -> None:
    """Continue with the data in the store, and record that an operator accepted the loss.

    Each lost board gets a new epoch, so that no viewer, page or cursor mixes the old data with the new data. After a
    loss of the whole store, all boards count as lost. A run-time board that is defined but has no data starts empty. A
    union keeps its data, and names the new epochs of its parts. Whether API keys are required does not change.

    Raises:
        StoreUnavailableError: the store is unavailable. Then the loss is not accepted. Run the same command again.
    """
    reason, known, before = str(losses), client.high_water.describe(), client.high_water.facts
    lost = None if losses.store else losses.boards.keys()
    salt = f"{before.store}:{len(before.accepted)}"
    with client.high_water.accepting(reason, lost):
        await watch.find()  # this call connects to the store
        for board in in_file.by_id:
            if lost is None or board in lost:
                keys = Keys(prefix, board)
                if not await renew(client, keys, secrets.token_hex(4)):
                    await _clear(client, keys)
        definitions = DefinitionStore(client, prefix)
        held = (await definitions.load()).boards
        for board, definition in held.items():
            if definition.state != "live":
                continue
            # The new epoch is computed from the old epoch, so an interrupted acceptance can run again. A union names
            # the new epochs of its parts.
            is_lost = lost is None or board in lost
            new_epoch = _next_epoch(definition.epoch, salt) if is_lost else definition.epoch
            parts = {
                part: _next_epoch(held[part].epoch, salt)
                if (lost is None or part in lost)
                and part in held
                and held[part].epoch in (epoch, _next_epoch(epoch, salt))
                else epoch
                for part, epoch in definition.parts.items()
            }
            changed = msgspec.structs.replace(definition, epoch=new_epoch, parts=parts)
            if changed == definition:
                continue
            # The definition comes first: servers ignore data that does not match it.
            if await definitions.keep((await definitions.load()).version, board, changed, None) is None:
                raise StoreUnavailableError(
                    "another process is changing boards: stop all servers that use the store, and try again"
                )
            keys = Keys(prefix, board)
            if is_lost and not await renew(client, keys, new_epoch):
                await _clear(client, keys)
                with suppress(DefinitionError):  # a later version of the server has created the board
                    await create(client, keys, read_board(board, changed.choices), new_epoch)
    log.warning("the loss of data was accepted", reason=reason, known=known, record=str(client.high_water.path))
    log.warning("the store may hold API keys that were revoked after it was copied: check them with `live keys list`")


async def _clear(client: Store, keys: Keys) -> None:
    """Delete what is left of a board that has lost its state. Keep entries of its journal: SQL may lack them."""
    async for name in client.names(keys.pattern):
        if not name.startswith(keys.journal("")):
            await client.write(name, "UNLINK", name)


def _next_epoch(epoch: str, salt: str) -> str:
    return hashlib.blake2b(f"{salt}:{epoch}".encode(), digest_size=4).hexdigest()
