"""The page of API keys and viewer tokens: create and revoke API keys, and sign tokens. A secret is shown once."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec
import segno
from markupsafe import Markup
from starlette.responses import Response

from live.auth.keys import VERBS
from live.domain.producer import ALL
from live.web.admin.admin_page import AdminPage, ApiCall, Desk, Form
from live.web.api.keys import KeyList, MadeKey, SignedToken
from live.web.pages.rendering import site_of

_ON_PAGE: Final = 100
_USUAL_LENGTH: Final = "8h"  # the lifetime that the form proposes for a viewer token
_PATH: Final = "/v1/keys"


class MadeSecret(msgspec.Struct, frozen=True):
    """An API key or a token, which is shown only once. `link` opens a board with a token, and `code` is its QR code."""

    text: str = ""
    link: str = ""
    code: Markup = Markup()


async def _show(desk: Desk, made: MadeSecret | None = None) -> Response:
    """Show the API keys, and a new API key or token, or else the requests to the API that the forms would send."""
    form = desk.form if made is None else {}
    listing = ApiCall("GET", _PATH)
    listed: Sequence[Mapping[str, Any]] = msgspec.json.decode(await desk.send(listing), type=KeyList).keys
    shown, number, page_count = desk.page_of(listed, _ON_PAGE)
    return await desk.show(
        "keys",
        listed=shown,
        number=number,
        page_count=page_count,
        made=made or MadeSecret(),
        answers=form,
        verbs=VERBS,
        listing=listing,
        moment_of=datetime.fromisoformat,
        revoking=_revoking,
        adding=_adding(form),
        signing=_signing(form),
        signs=bool(desk.live.settings.token_secret),
    )


async def _add(desk: Desk) -> Response:
    made = await desk.send(_adding(desk.form))
    return await _show(desk, MadeSecret(msgspec.json.decode(made, type=MadeKey).key))


async def _revoke(desk: Desk) -> Response:
    await desk.send(_revoking(desk.form.get("id", ""), desk.form.get("secret", "")))
    return desk.done("revoked")


async def _sign(desk: Desk) -> Response:
    token = msgspec.json.decode(await desk.send(_signing(desk.form)), type=SignedToken).token
    opened = _words(desk.form, "opens")
    if not opened:  # a token for votes only, which opens no page
        return await _show(desk, MadeSecret(token))
    first = next((f"boards/{board}" for board in opened if not board.endswith(ALL)), "")
    link = f"{site_of(desk.visit)}/{first}?token={token}"
    code = segno.make(link, error="l", micro=False).svg_inline(dark="#000", light="#fff", border=4, scale=4)
    return await _show(desk, MadeSecret(token, link, Markup(code)))  # noqa: S704 - an SVG of squares, without text


def _words(form: Form, name: str) -> list[str]:
    return list(dict.fromkeys(word for word in map(str.strip, form.get(name, "").split(",")) if word))


def _adding(form: Form) -> ApiCall:
    """Leave out fields that keep their value or have the default."""
    rate = form.get("rate", "").strip()
    body = {
        "boards": _words(form, "boards"),
        "verbs": [verb for verb in VERBS if f"verb_{verb}" in form],
        "types": _words(form, "sources"),
        "for": form.get("for", "").strip(),
        "any_board": "any_board" in form,
    }
    given = {name: value for name, value in body.items() if value}
    if rate:
        try:
            given["rate"] = float(rate)
        except ValueError:
            given["rate"] = rate  # the API refuses this and says what is wrong
    return ApiCall("PUT", f"{_PATH}/{quote(form.get('id', '').strip() or 'ID', safe='')}", given)


def _revoking(key: str, secret: str) -> ApiCall:
    return ApiCall("DELETE", f"{_PATH}/{quote(key, safe='')}?secret={quote(secret, safe='')}")


def _signing(form: Form) -> ApiCall:
    member = {"key": form["member"]} if "member" in form else {}
    voter = {"likes": _words(form, "likes"), "sub": form.get("sub", "").strip()}
    given = {name: value for name, value in voter.items() if value}
    body = {"boards": _words(form, "opens"), "for": form.get("length", _USUAL_LENGTH), **member, **given}
    return ApiCall("POST", "/v1/tokens", body)


PAGE: Final = AdminPage(
    path="keys",
    name="keys",
    show=_show,
    acts={"add": _add, "preview": _show, "revoke": _revoke, "sign": _sign},
    needs_all_boards=True,
)
