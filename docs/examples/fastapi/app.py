"""A site with accounts, songs and a live board: `uvicorn app:app --port 8080 --workers 2`."""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI, Form, HTTPException, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.templating import Jinja2Templates
from live.client import Answer, Event, LiveBoard, LiveBoardError
from starlette.middleware.sessions import SessionMiddleware

SONGS = ("Aurora", "Blue Lake", "Copper Sun")
ACCOUNTS = {"ann": "the password of ann", "bob": "the password of bob"}  # your site has accounts of its own
BOARD_URL = os.environ.get("BOARD_URL", "http://127.0.0.1:8000")  # as this site and its visitors reach it
board = LiveBoard(BOARD_URL, os.environ.get("BOARD_KEY"))  # an API key that may post to the board `songs`


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Open the client when a worker starts, so each worker has its own."""
    async with board:
        yield


app = FastAPI(lifespan=lifespan)
app.add_middleware(
    SessionMiddleware,
    secret_key=os.environ.get("SITE_SECRET", "only for this example"),
    session_cookie="songs_session",
    same_site="lax",
)
templates = Jinja2Templates(Path(__file__).parent / "templates")


def from_own_page(request: Request, csrf: Annotated[str, Form()] = "") -> None:
    """Refuse a form that another site sends: only pages of this site know the token of the session."""
    if not secrets.compare_digest(csrf.encode(), request.session.get("csrf", secrets.token_hex()).encode()):
        raise HTTPException(403, "This form is not from this site, or your session has ended: load the page again.")


@app.get("/")
def page(request: Request) -> Response:
    """Show the songs with their like buttons, and the board in a frame."""
    request.session.setdefault("csrf", secrets.token_hex())
    shown = {"songs": SONGS, "board": BOARD_URL, "session": request.session, "said": request.session.pop("said", "")}
    return templates.TemplateResponse(request, "page.html", shown)


@app.post("/login", dependencies=[Depends(from_own_page)])
def login(request: Request, name: Annotated[str, Form()], password: Annotated[str, Form()]) -> Response:
    """Begin a session."""
    if not secrets.compare_digest(password.encode(), ACCOUNTS.get(name, secrets.token_hex()).encode()):
        request.session["said"] = "Wrong name or password."
    else:
        request.session["account"] = name
    return RedirectResponse("/", 303)


@app.post("/like/{song}", dependencies=[Depends(from_own_page)])  # no GET: links and crawlers must not like anything
async def like(request: Request, song: str) -> Response:
    """Count a like of this account."""
    account = request.session.get("account")
    if account is None:
        raise HTTPException(401, "Log in to like a song.")
    if song not in SONGS:
        raise HTTPException(404, "No such song.")
    try:
        answer = await board.post(Event(song, board="songs", actor=f"account {account}"))
    except LiveBoardError:
        said = "The board can't be reached. Try again in a minute."
    else:
        said = outcome(song, answer)
    request.session["said"] = said
    return RedirectResponse("/", 303)


def outcome(song: str, answer: Answer) -> str:
    """Say what became of the like."""
    if answer.accepted:
        return f"You like {song}."
    refusal = answer.rejected[0]
    return f"You have liked {song} before." if refusal.code == "quota_exceeded" else refusal.detail
