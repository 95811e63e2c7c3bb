"""Routes that make and revoke API keys, and sign viewer tokens. The routes need an API key for all boards."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType, field
from starlette.requests import Request
from starlette.responses import Response

from live.auth import tokens
from live.auth.keys import add_key, board_faults, end_of, key_view, revoke_key, scope_faults
from live.domain.choices import BOARD_ID
from live.domain.event import rfc3339
from live.domain.meaning import says
from live.domain.producer import ALL, Principal, Scope, Verb
from live.domain.text import unknown
from live.errors import ProblemError, SetupError
from live.http.parameters import Parameters
from live.store.registry.audit_trail import digest_of_person, entry_of
from live.store.registry.producers import ProducerStore
from live.web.api.admin import read_struct, unlimited_admin_of
from live.web.parts import live_of, reader_of
from live.web.responses import NOT_KEPT, NOT_STORED, json_response

_EXPECTED_PUT: Final = 'the body must be like {"boards": ["posts"], "verbs": ["post"], "rate": 500, "for": "30d"}'
_EXPECTED_SIGN: Final = 'the body must be like {"boards": ["staff"], "for": "8h"}'
_LONGEST: Final = 64  # characters of a time


class KeyChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rights of an API key. A field that is left out has its default, or keeps its value if the API key exists."""

    boards: Annotated[
        tuple[str, ...],
        Meta(max_length=1000),
        says("The boards of the API key, as ids and prefixes such as `acme-*`; `*` for all."),
    ] = ()
    verbs: Annotated[tuple[Verb, ...], Meta(max_length=3), says("What the API key may do. Default: `post`.")] = ()
    rate: Annotated[float | UnsetType, says("Events per second; 0 for no limit. Default: `LIVE_RATE`.")] = UNSET
    types: Annotated[
        tuple[str, ...],
        Meta(max_length=1000),
        says("Event types that boards of this administrator may take; `*` for all."),
    ] = ()
    length: Annotated[
        Annotated[str, Meta(max_length=_LONGEST)] | UnsetType,
        says("How long the API key is valid, such as `30d`, or `never` if it has no end."),
    ] = field(default=UNSET, name="for")
    any_board: Annotated[bool, says("Whether `boards` may name boards that do not exist yet.")] = False

    @property
    def scope(self) -> Scope:
        """The scope of the API key. A `for` that is no length of time raises `ValueError`."""
        return Scope(
            boards=UNSET if not self.boards else None if ALL in self.boards else self.boards,
            verbs=self.verbs or UNSET,
            rate=self.rate,
            sources=self.types or UNSET,
            expires=UNSET if self.length is UNSET else end_of(self.length),
        )


class MadeKey(msgspec.Struct, frozen=True):
    """A new secret, which is shown only in this response: the API key to send, and the fingerprint of the secret."""

    key: Annotated[str, says("The API key to send. No other response has it.")]
    fingerprint: Annotated[str, says("A short public name of the secret.")]


class KeyList(msgspec.Struct, frozen=True):
    """All API keys: what each may do, and the fingerprints of its valid secrets."""

    keys: Annotated[
        Sequence[Mapping[str, Any]],
        says(
            "The API keys: what each may do, the fingerprints of its secrets, and how many requests "
            "its rate has `refused`."
        ),
    ]


class TokenChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rights of a viewer token. `boards` or `likes` is needed."""

    boards: Annotated[
        tuple[str, ...],
        Meta(max_length=100),
        says("The private boards of the token, as ids and prefixes such as `acme-*`."),
    ] = ()
    length: Annotated[str, Meta(max_length=_LONGEST), says("How long the token is valid, such as `8h`.")] = field(
        default="8h", name="for"
    )
    member: Annotated[str | None, says("The member who is the viewer.")] = field(default=None, name="key")
    likes: Annotated[
        tuple[str, ...], Meta(max_length=100), says("The boards on which the viewer may vote, as ids and prefixes.")
    ] = ()
    sub: Annotated[str | None, says("Who votes, if `likes` names a board: the `actor` of the votes.")] = None


class SignedToken(msgspec.Struct, frozen=True):
    """A viewer token, which is shown only in this response, and when it ends."""

    token: Annotated[str, says("The token. No other response has it.")]
    expires: Annotated[str, says("When the token ends.")]


async def list_keys(request: Request) -> Response:
    """List the API keys.

    Secrets are left out.
    """
    await _keeper_of(request)
    live = live_of(request)
    producers = ProducerStore(live.client)
    records, uses = (await producers.load()).records, await producers.last_uses()
    listed = sorted(records.values(), key=lambda record: (not record.secrets, record.id))
    return json_response(KeyList([key_view(record, uses) for record in listed]), NOT_KEPT)


async def put_key(request: Request) -> Response:
    """Create an API key.

    If the API key exists, this adds a second secret.
    """
    admin, live = await _keeper_of(request), live_of(request)
    choice = await read_struct(request, KeyChoice, _EXPECTED_PUT, "api_key_invalid")
    faults = []
    try:
        scope = choice.scope
    except ValueError as error:
        scope, faults = msgspec.structs.replace(choice, length=UNSET).scope, [str(error)]
    faults += scope_faults(scope)
    known = {ledger.state.board.id for ledger in live.ledgers(reader_of(request))}
    named = [] if choice.any_board else [board for board in choice.boards if BOARD_ID.fullmatch(board)]
    faults += [f"boards: {unknown('board', board, known)}" for board in named if board not in known]
    if faults:
        raise ProblemError("api_key_invalid", "\n".join(faults))
    producer = request.path_params["key"]
    try:
        record, secret = await add_key(live.client, admin.id, producer, scope)
    except SetupError as error:
        raise ProblemError("api_key_invalid", str(error)) from None
    made = MadeKey(f"{producer}.{secret}", record.secrets[-1].fingerprint)
    return json_response(made, NOT_KEPT, (), HTTPStatus.CREATED)


class RevokeParameters(Parameters, frozen=True, kw_only=True):
    """The secret to revoke."""

    secret: Annotated[str | None, says("Revoke only the secret with this fingerprint.")] = None


async def delete_key(request: Request, query: RevokeParameters) -> Response:
    """Revoke an API key.

    With `secret`, this revokes only that secret.
    """
    admin, live = await _keeper_of(request), live_of(request)
    try:
        await revoke_key(live.client, admin.id, request.path_params["key"], query.secret)
    except SetupError as error:
        raise ProblemError("api_key_not_found", str(error)) from None
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=NOT_STORED)


async def sign_token(request: Request) -> Response:
    """Sign a viewer token.

    This needs `LIVE_TOKEN_SECRET`.
    """
    admin, live = await _keeper_of(request), live_of(request)
    choice = await read_struct(request, TokenChoice, _EXPECTED_SIGN, "api_key_invalid")
    faults = [*board_faults("boards", choice.boards), *board_faults("likes", choice.likes)]
    if not faults:
        try:
            token, ends = tokens.sign_token(
                live.settings, choice.boards, choice.length, choice.member, choice.likes, choice.sub
            )
        except (SetupError, ValueError) as error:
            faults = [str(error)]
    if faults:
        raise ProblemError("api_key_invalid", "\n".join(faults))
    may_vote = {"likes": choice.likes, **digest_of_person(choice.sub or "", "actor")} if choice.likes else {}
    after = {"boards": choice.boards, **may_vote, "expires": rfc3339(ends, 1, "seconds")}
    await live.trail.add(entry_of(admin.id, "token_signed", key=choice.member or "", after=after))
    return json_response(SignedToken(token, rfc3339(ends, 1, "seconds")), NOT_KEPT, (), HTTPStatus.CREATED)


async def _keeper_of(request: Request) -> Principal:
    """Return the administrator, who needs an API key for all boards."""
    producer = await unlimited_admin_of(request, "API keys and tokens can be for all of them")
    if not producer.id:
        raise ProblemError("scope_forbidden", "send an API key with the verb admin: `live keys add ID --verbs admin`")
    return producer
