"""The page of API keys and viewer tokens: create and revoke them. A secret is shown once, when it is made.

Only an API key for all boards may do this, because another API key could do more than its maker.
"""

import io
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
import segno
from markupsafe import Markup
from starlette.responses import Response

from live.auth.api_keys import VERBS, add_key, end_of, key_view, revoke_key, scope_faults
from live.auth.signing import sign_token
from live.domain.board import BOARD_ID
from live.domain.producer import ALL, Scope, Verb
from live.domain.text import unknown
from live.errors import SetupError
from live.network.parameters import whole_number
from live.store.registry.producers import ProducerStore
from live.store.registry.trail import entry_of
from live.web.admin.desk import NO_FORM, AdminPage, Desk, Form
from live.web.pages.rendering import site_of

_ON_PAGE: Final = 100
_MOST_PAGES: Final = 10**6
_USUAL_LENGTH: Final = "8h"  # of a token


class KeyOutcome(msgspec.Struct, frozen=True):
    """What came of a form: what is wrong with it, and what was made, which is shown only now.

    `made` is an API key or a token, `link` opens a board with the token, and `code` is the link as a picture.
    """

    mistakes: Sequence[str] = ()
    made: str = ""
    link: str = ""
    code: Markup = Markup()


_NOTHING: Final = KeyOutcome()


async def show(
    desk: Desk, error: Exception | None = None, form: Form = NO_FORM, outcome: KeyOutcome = _NOTHING
) -> Response:
    """Show the API keys, and what came of a form."""
    live = desk.live
    producers = ProducerStore(live.client, live.settings.key_prefix)
    records, uses = (await producers.load()).records, await producers.last_uses()
    number = whole_number(desk.visit.query, "page", 1, 1, _MOST_PAGES)
    listed = sorted(records.values(), key=lambda record: (not record.secrets, record.id))
    return await desk.show(
        "keys",
        error,
        422 if outcome.mistakes else 200,
        listed=[key_view(record, uses) for record in listed[(number - 1) * _ON_PAGE : number * _ON_PAGE]],
        number=number,
        page_count=max(1, math.ceil(len(listed) / _ON_PAGE)),
        outcome=outcome,
        answers=form,
        about=form.get("act", ""),
        verbs=VERBS,
        add_command=_add_command(form),
        sign_command=_sign_command(form),
        signs=bool(live.settings.token_secret),
    )


async def preview(desk: Desk, form: Form) -> Response:
    """Show the commands that do the same as the forms."""
    return await show(desk, form=form)


async def add(desk: Desk, form: Form) -> Response:
    """Create an API key, or add a second secret to it, and show it."""
    live, mistakes = desk.live, list[str]()
    try:
        scope = _scope_of(form)
        mistakes += scope_faults(scope)
        if "any_board" not in form:
            known = {ledger.state.board.id for ledger in desk.ledgers()}
            named = [board for board in scope.boards or () if BOARD_ID.fullmatch(board)]
            mistakes += [f"boards: {unknown('board', board, known)}" for board in named if board not in known]
        if not mistakes:
            id_ = form.get("id", "").strip()
            _, secret = await add_key(live.client, live.settings.key_prefix, desk.who, id_, scope)
            return await show(desk, form={"act": "add"}, outcome=KeyOutcome(made=f"{id_}.{secret}"))
    except (SetupError, ValueError) as error:
        mistakes.append(str(error))
    return await show(desk, form=form, outcome=KeyOutcome(mistakes))


async def revoke(desk: Desk, form: Form) -> Response:
    """Revoke one secret of an API key, or all of them."""
    live = desk.live
    try:
        await revoke_key(live.client, live.settings.key_prefix, desk.who, form.get("id", ""), form.get("secret"))
    except SetupError as error:
        return await show(desk, form=form, outcome=KeyOutcome([str(error)]))
    return desk.done("revoked")


async def sign(desk: Desk, form: Form) -> Response:
    """Sign a viewer token, and show it with a link and a QR code."""
    boards, mistakes = _words(form, "opens"), list[str]()
    try:
        mistakes += scope_faults(Scope(boards=boards))
        if not boards:
            mistakes.append("boards: name at least one")
        if not mistakes:
            member = form.get("member")
            token, ends = sign_token(desk.live.settings, boards, form.get("length", ""), member)
            entry = entry_of(desk.who, "token_signed", key=member or "", after={"boards": boards, "expires": ends})
            await desk.live.trail.add(entry)
            first = next((f"boards/{board}" for board in boards if not board.endswith(ALL)), "")
            link = f"{site_of(desk.visit)}/{first}?token={token}"
            return await show(desk, form={"act": "sign"}, outcome=KeyOutcome(made=token, link=link, code=_code(link)))
    except (SetupError, ValueError) as error:
        mistakes.append(str(error))
    return await show(desk, form=form, outcome=KeyOutcome(mistakes))


def _words(form: Form, name: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in map(str.strip, form.get(name, "").split(",")) if word))


def _scope_of(form: Form) -> Scope:
    """Read the scope of an API key. What is left out stays as it is, or as usual.

    Raises:
        ValueError: a number or a time is not valid.
    """
    boards, sources, choices = _words(form, "boards"), _words(form, "sources"), dict[str, Any]()
    if boards:
        choices["boards"] = None if ALL in boards else boards
    if sources:
        choices["sources"] = sources
    if verbs := [verb for verb in VERBS if f"verb_{verb}" in form]:
        choices["verbs"] = cast("tuple[Verb, ...]", tuple(verbs))
    if rate := form.get("rate", "").strip():
        try:
            choices["rate"] = float(rate)
        except ValueError:
            raise ValueError("rate must be a number from 0.001 to 1000000000, or 0 for no limit") from None
    if length := form.get("for", "").strip():
        choices["expires"] = end_of(length)
    return Scope(**choices)


def _add_command(form: Form) -> str:
    """Write the command that makes the same API key."""
    verbs = ",".join(verb for verb in VERBS if f"verb_{verb}" in form)
    given: Mapping[str, str] = {
        "boards": ",".join(_words(form, "boards")), "verbs": verbs, "rate": form.get("rate", ""),
        "sources": ",".join(_words(form, "sources")), "for": form.get("for", ""),
    }  # fmt: skip
    flags = [part for name, text in given.items() if text for part in (f"--{name}", text)]
    flags += ["--any-board"] if "any_board" in form else []
    return shlex.join(["live", "keys", "add", form.get("id") or "ID", *flags])


def _sign_command(form: Form) -> str:
    """Write the command that signs the same token."""
    words = ["live", "tokens", "sign", "--boards", ",".join(_words(form, "opens")) or "BOARDS"]
    words += ["--for", form.get("length") or _USUAL_LENGTH]
    return shlex.join([*words, *(["--key", form["member"]] if "member" in form else [])])


def _code(link: str) -> Markup:
    drawn = io.BytesIO()
    code = segno.make(link, error="l", micro=False)
    code.save(drawn, kind="svg", xmldecl=False, svgns=False, dark="#000", light="#fff", border=4, scale=4)
    return Markup(drawn.getvalue().decode())  # noqa: S704 - made of squares


PAGE: Final = AdminPage(
    path="keys",
    name="keys",
    show=show,
    acts={"add": add, "preview": preview, "revoke": revoke, "sign": sign},
    needs_all_boards=True,
)
