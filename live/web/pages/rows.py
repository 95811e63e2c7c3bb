"""The rows of a table as HTML: of records, of a followed member, and of contestants without votes.

A page has many rows. Here they take a tenth of the time that a template takes.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from html import escape
from typing import Final
from urllib.parse import quote

import msgspec
from markupsafe import Markup
from msgspec import UNSET

from live.domain.board import Board
from live.domain.item import Item, initial_of
from live.domain.ranking import Record
from live.domain.text import ScoreFormat
from live.web.pages.language import Language, grouped
from live.web.pages.trends import Trends
from live.web.pages.words import (
    bar_width,
    format_of,
    gap_words,
    line_words,
    metadata_words,
    move_words,
    name_words,
    share_words,
)

PLAIN: Final = "!'()*"  # the characters that ECMAScript's `encodeURIComponent` does not encode either

_TOP: Final = 3  # the first rows, which a podium replaces


class TableRows(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Draws the rows of one table."""

    language: Language
    root: str  # the root path, with which the addresses of records begin
    board: Board
    items: Mapping[str, Item]
    trends: Trends
    has_pictures: bool
    suffix: str = ""  # the end of these addresses: a query, or an empty text
    is_top: bool = True  # whether the table begins with the first record of the board
    is_linked: bool = False
    has_bars: bool = False
    span: str = ""  # the length of the window in words, if rows have sparklines
    own: str | None = None  # the member that the reader follows
    likes: str = ""  # the form of the like buttons. It is empty if rows have none
    # The members that have a vote of the visitor. None means that likes are no votes.
    given: Collection[str] | None = None
    total: int | None  # the number of all votes, if rows show shares of it and not gaps

    @cached_property
    def score_format(self) -> ScoreFormat | None:
        """How rows write scores."""
        return format_of(self.language, self.board)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The fields that have columns instead of the score."""
        return () if self.board.packing is None else tuple(field.name for field in self.board.packing.fields)

    def of(self, records: Sequence[Record]) -> Markup:
        """Draw the rows of consecutive records."""
        return _html("\n".join([self.row(records, at) for at in range(len(records))]))

    def row(self, records: Sequence[Record], at: int) -> str:
        """Draw the row of one of consecutive records."""
        record = records[at]
        if self.fields:
            gap = ""
        elif self.total is not None:
            gap = share_words(record.score, self.total)
        else:
            above, below = records[at - 1] if at else None, records[at + 1] if at < len(records) - 1 else None
            gap = gap_words(self.language, record, above, below, self.score_format)
        kind = "top" if self.is_top and at < _TOP else ""
        return self._ranked(record, gap, records[0].score, kind, has_button=True)

    def pinned(self, member: str, record: Record | None, gap: str, first: int) -> Markup:
        """Draw the foot of the table: a followed member, maybe without a record. `first` is the first score."""
        if record is not None:
            return _html(f"<tfoot>{self._ranked(record, gap, first, '', has_button=False)}</tfoot>")
        values = '<td class="score"></td>' * (len(self.fields) or 1)
        note = escape(self.language.translate("you_not_ranked"))
        return _html(
            f'<tfoot><tr data-member="{escape(member)}" class="me own"><td class="rank"></td>'
            f'<th scope="row" data-note="{note}">'
            f"{self._line(member)}{self._name(member, *self._named(member), None)}{self._bar(0, 0)}</th>"
            f"{values}{_NO_BUTTON if self.likes else ''}</tr></tfoot>"
        )

    def voteless(self, contestants: Sequence[Record]) -> Markup:
        """Draw the rows of contestants without votes."""
        return _html("\n".join(map(self._voteless, contestants)))

    def _voteless(self, record: Record) -> str:
        member = record.member
        item, name = self._named(member)
        is_own = member == self.own
        kind, note = _attribute("class", "me" if is_own else ""), self.language.translate("you") if is_own else ""
        return (
            f'<tr data-member="{escape(member)}"{kind}><td class="rank"></td>'
            f'<th scope="row"{_attribute("data-note", note)}>'
            f"{self._name(member, item, name, None)}{about(record)}</th>"
            f'<td class="score">0</td>{self._button(member, name)}</tr>'
        )

    def _ranked(self, record: Record, gap: str, first: int, kind: str, *, has_button: bool) -> str:
        member, language = record.member, self.language
        item, name = self._named(member)
        note = move = moved = ""
        if record.rank == 1:
            kind += " lead"
        if member == self.own:
            kind, note = f"{kind} me own", language.translate("you")
        elif self.given and member in self.given:
            kind, note = f"{kind} me", language.translate("your_vote")
        if self.trends.before is not None:
            move, moved = move_words(language, record.rank, self.trends.rank_before(record))
        movement = f"{_attribute('data-move', move)}{_attribute('data-moved', moved)}"
        path = record_path(self.board.id, member) if self.is_linked else None
        if self.fields:
            fields = {} if record.fields is UNSET else record.fields
            values = "".join(f'<td class="score">{grouped(fields[field])}</td>' for field in self.fields)
        else:
            score = escape(grouped(record.score, self.score_format))
            values = f'<td class="score"{_attribute("data-gap", gap)}>{score}</td>'
        button = self._button(member, name) if has_button else _NO_BUTTON if self.likes else ""
        return (
            f'<tr data-member="{escape(member)}"{_attribute("class", kind.lstrip())}>'
            f'<td class="rank"{movement}>{grouped(record.rank)}</td>'
            f'<th scope="row"{_attribute("data-note", note)}>{self._line(member)}{self._name(member, item, name, path)}'
            f"{about(record)}{self._bar(record.score, first)}</th>{values}{button}</tr>"
        )

    def _named(self, member: str) -> tuple[Item | None, str]:
        item = self.items.get(member)
        return item, name_words(self.language, member) if item is None else item.title

    def _name(self, member: str, item: Item | None, name: str, path: str | None) -> str:
        shown = escape(name)
        title = "" if name == member else f' title="{escape(member)}"'
        if path is not None:
            shown = f'<a href="{escape(f"{self.root}{path}{self.suffix}")}">{shown}</a>'
        return f"{picture(item, name) if self.has_pictures else ''}<bdi{title}>{shown}</bdi>"

    def _line(self, member: str) -> str:
        if not self.span:
            return ""
        line = self.trends.lines.get(member)
        role, points = 'role="none"', ""
        if line is not None:
            words = line_words(self.language, self.span, line, self.score_format)
            role, points = f'role="img" aria-label="{escape(words)}"', line.points
        return (
            f'<svg class="trend" viewBox="0 0 100 20" preserveAspectRatio="none" {role}>'
            f'<polyline points="{points}"></polyline></svg>'
        )

    def _bar(self, score: int, first: int) -> str:
        if not self.has_bars:
            return ""
        return f'<svg class="bar" role="none"><rect width="{bar_width(score, first):g}%"></rect></svg>'

    def _button(self, member: str, name: str) -> str:
        if not self.likes:
            return ""
        return f'<td class="like">{like_button(self.language, self.board, self.likes, member, name, self.given)}</td>'


def record_path(board: str, member: str) -> str:
    """Make the path of the page of a record."""
    return f"/boards/{board}/records/{quote(member, safe=PLAIN)}"


def picture(item: Item | None, name: str) -> Markup:
    """Draw the picture of a member, or a letter of its name instead."""
    if item is None or not item.image:
        return _html(f'<span class="picture" aria-hidden="true">{escape(initial_of(name))}</span>')
    source = f'src="{escape(item.image)}"'
    return _html(f'<img class="picture" {source} alt="" loading="lazy" decoding="async" referrerpolicy="no-referrer">')


def about(record: Record) -> Markup:
    """Draw the metadata of a record, if it has some."""
    parts = metadata_words(record.metadata)
    if not parts:
        return _NOTHING
    return _html(f'<small class="about">{" · ".join(f"<bdi>{escape(part)}</bdi>" for part in parts)}</small>')


def like_button(
    language: Language, board: Board, form: str, member: str, name: str, given: Collection[str] | None
) -> Markup:
    """Draw the button that likes a member, gives it a vote, or takes it back. `given` is as in `TableRows`."""
    sentence, says, state, parameter = "like_member", "♡", "", "key"
    if given is not None and board.votes is not None:
        changes, act = board.votes.changes, "vote"
        if member in given:
            act = "undo" if changes else "voted"
            parameter = "undo" if changes else "key"
            state = " data-voted" if changes else ' data-voted aria-disabled="true"'
        elif given and changes and board.votes.per_actor == 1:
            act = "change"
        sentence, says = f"{act}_member", escape(language.translate(act))
    label = escape(language.translate(sentence, name=name))
    return _html(
        f'<button form="{form}" name="{parameter}" value="{escape(member)}" aria-label="{label}"{state}>{says}</button>'
    )


def _attribute(name: str, value: str) -> str:
    return f' {name}="{escape(value)}"' if value else ""


def _html(drawn: str) -> Markup:
    return Markup(drawn)  # noqa: S704 - this module escapes all texts in it


_NOTHING: Final = Markup()
_NO_BUTTON: Final = '<td class="like"></td>'
