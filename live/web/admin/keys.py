"""The page of API keys and viewer tokens: create and revoke API keys, and sign tokens. A secret is shown once."""

import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import msgspec
import segno
from markupsafe import Markup
from starlette.responses import Response

from live.auth.api_keys import VERBS
from live.domain.producer import ALL
from live.web.admin.admin_page import NO_FORM, AdminPage, Desk, Form
from live.web.admin.calls import ApiCall
from live.web.pages.rendering import site_of
from live.web.writes.keys import KeyList, MadeKey, SignedToken

_ON_PAGE: Final = 100
_USUAL_LENGTH: Final = "8h"  # the lifetime that the form proposes for a viewer token
_PATH: Final = "/v1/keys"


class MadeSecret(msgspec.Struct, frozen=True):
    """An API key or a token, which is shown only once. `link` opens a board with a token, and `code` is its QR code."""

    text: str = ""
    link: str = ""
    code: Markup = Markup()


_NOTHING: Final = MadeSecret()


async def show(
    desk: Desk, error: Exception | None = None, form: Form = NO_FORM, made: MadeSecret = _NOTHING
) -> Response:
    """Show the API keys, and a new API key or token."""
    listing = ApiCall("GET", _PATH)
    listed: Sequence[Mapping[str, Any]] = msgspec.json.decode((await desk.send(listing)).body, type=KeyList).keys
    shown, number, page_count = desk.page_of(listed, _ON_PAGE)
    return await desk.show(
        "keys",
        error,
        listed=shown,
        number=number,
        page_count=page_count,
        made=made,
        answers=form,
        verbs=VERBS,
        listing=listing,
        moment_of=datetime.fromisoformat,
        revoking=_revoking,
        adding=_adding(form),
        signing=_signing(form),
        signs=bool(desk.live.settings.token_secret),
    )


async def preview(desk: Desk, form: Form) -> Response:
    """Show the page with the requests to the API that the forms would send."""
    return await show(desk, form=form)


async def add(desk: Desk, form: Form) -> Response:
    """Create an API key, or add a second secret to it, and show it."""
    answer = await desk.send(_adding(form))
    return await show(desk, made=MadeSecret(msgspec.json.decode(answer.body, type=MadeKey).key))


async def revoke(desk: Desk, form: Form) -> Response:
    """Revoke one secret of an API key."""
    await desk.send(_revoking(form.get("id", ""), form.get("secret", "")))
    return desk.done("revoked")


async def sign(desk: Desk, form: Form) -> Response:
    """Sign a viewer token, and show it with a link and a QR code."""
    answer = await desk.send(_signing(form))
    token = msgspec.json.decode(answer.body, type=SignedToken).token
    opened = _words(form, "opens")
    if not opened:  # a token for votes only, which opens no page
        return await show(desk, made=MadeSecret(token))
    first = next((f"boards/{board}" for board in opened if not board.endswith(ALL)), "")
    link = f"{site_of(desk.visit)}/{first}?token={token}"
    return await show(desk, made=MadeSecret(token, link, _code(link)))


def _words(form: Form, name: str) -> list[str]:
    return list(dict.fromkeys(word for word in map(str.strip, form.get(name, "").split(",")) if word))


def _adding(form: Form) -> ApiCall:
    """Make the request for an API key. Fields that are left out keep their value or have the default."""
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


def _code(link: str) -> Markup:
    drawn = io.BytesIO()
    code = segno.make(link, error="l", micro=False)
    code.save(drawn, kind="svg", xmldecl=False, svgns=False, dark="#000", light="#fff", border=4, scale=4)
    return Markup(drawn.getvalue().decode())  # noqa: S704 - an SVG of squares, without text


PAGE: Final = AdminPage(
    path="keys",
    name="keys",
    show=show,
    acts={"add": add, "preview": preview, "revoke": revoke, "sign": sign},
    needs_all_boards=True,
)
