"""The page with the songs and the board, and the like."""

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe
from live.client import Answer, Event, LiveBoardError

from songs.board import board

SONGS = ("Aurora", "Blue Lake", "Copper Sun")


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Show the songs with their like buttons, and the board in a frame."""
    return render(request, "page.html", {"songs": SONGS, "board": settings.BOARD_URL})


@require_POST  # a link, a crawler or a prefetch sends GET, and must not like anything
@login_required
def like(request: HttpRequest, song: str) -> HttpResponse:
    """Count a like of this account. Django has checked the CSRF token of the form."""
    if song not in SONGS:
        raise Http404
    try:
        answer = board().post(Event(song, board="songs", actor=f"account {request.user.pk}"))
    except LiveBoardError:
        messages.error(request, "The board can't be reached. Try again in a minute.")
    else:
        messages.info(request, said(song, answer))
    return redirect("page")


def said(song: str, answer: Answer) -> str:
    """Say what became of the like."""
    if answer.accepted:
        return f"You like {song}."
    refusal = answer.rejected[0]
    return f"You have liked {song} before." if refusal.code == "quota_exceeded" else refusal.detail
