"""Packed scores can be unpacked, and compare like their fields one after another."""

import re
from collections.abc import Mapping
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.domain.packing import MAX_VALUES, Field, Packing, SumPacking

LEVELS = Field(name="levels", high=99)
REVIVES = Field(name="revives", sort_order="asc", high=99)
TIME = Field(name="time", sort_order="asc", high=9_999)
GAME = Packing((LEVELS, REVIVES, TIME))


@st.composite
def packings(draw: st.DrawFn, most_values: int = MAX_VALUES) -> Packing:
    """Fields of any range, as many as fit into a score."""
    fields: list[Field] = []
    left = most_values
    for name in draw(st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,63}", fullmatch=True), min_size=1, unique=True)):
        low = draw(st.integers(-(2**60), 2**60))
        radix = draw(st.integers(1, min(left, 1000)) | st.integers(1, left))
        left //= radix
        fields.append(
            Field(name=name, sort_order=draw(st.sampled_from(["desc", "asc"])), low=low, high=low + radix - 1)
        )
    return Packing(tuple(fields))


def values_for(packing: Packing) -> st.SearchStrategy[dict[str, int]]:
    """A value for each field, often at the end of its range."""
    return st.fixed_dictionaries(
        {
            field.name: st.sampled_from([field.low, field.high]) | st.integers(field.low, field.high)
            for field in packing.fields
        }
    )


def directed(packing: Packing, values: Mapping[str, int]) -> tuple[int, ...]:
    """The values to compare. Where lower values are better, their sign is changed."""
    return tuple(values[field.name] * (1 if field.sort_order == "desc" else -1) for field in packing.fields)


def test_a_score_is_a_number_in_mixed_radix() -> None:
    """A score with more levels is ahead.

    Among scores with equal levels, fewer revives are ahead, and then less time.
    """
    assert GAME.count == 100 * 100 * 10_000
    assert GAME.pack({"levels": 0, "revives": 99, "time": 9_999}) == 0
    assert GAME.pack({"levels": 0, "revives": 99, "time": 9_998}) == 1
    assert GAME.pack({"levels": 1, "revives": 99, "time": 9_999}) == 100 * 10_000
    assert GAME.pack({"time": 0, "revives": 0, "levels": 99}) == GAME.count - 1
    assert GAME.unpack(1_000_001) == {"levels": 1, "revives": 99, "time": 9_998}


@pytest.mark.slow
@given(st.data())
def test_packed_values_can_be_unpacked(data: st.DataObject) -> None:
    """The values are in the order of the fields. A double can hold the score exactly."""
    packing = data.draw(packings())
    values = data.draw(values_for(packing))
    score = packing.pack(values)
    assert 0 <= score < packing.count <= MAX_VALUES
    assert int(float(score)) == score
    assert packing.unpack(score) == values
    assert list(packing.unpack(score)) == [field.name for field in packing.fields]


@pytest.mark.slow
@given(st.data())
def test_unpacked_scores_can_be_packed(data: st.DataObject) -> None:
    """Every score in the range can be unpacked, and the values give the same score again."""
    packing = data.draw(packings())
    score = data.draw(st.sampled_from([0, packing.count - 1]) | st.integers(0, packing.count - 1))
    assert packing.pack(packing.unpack(score)) == score


@pytest.mark.slow
@given(st.data())
def test_scores_compare_like_their_fields(data: st.DataObject) -> None:
    """Scores compare by one field after another, each in its direction."""
    packing = data.draw(packings())
    one = data.draw(values_for(packing))
    other = one | data.draw(st.sampled_from([{}, data.draw(values_for(packing))]))
    name = data.draw(st.sampled_from(packing.fields)).name
    other[name] = data.draw(values_for(packing))[name]  # often, `one` and `other` differ only in this field
    score, other_score = packing.pack(one), packing.pack(other)
    assert (score < other_score) == (directed(packing, one) < directed(packing, other))
    assert (score == other_score) == (one == other)


@pytest.mark.slow
@given(packings(most_values=1000))
def test_all_values_give_all_scores(packing: Packing) -> None:
    """The scores are 0, 1, 2 and so on, from worst to best."""
    names = [field.name for field in packing.fields]
    ranges = [range(field.low, field.high + 1) for field in packing.fields]
    all_values = [dict(zip(names, values, strict=True)) for values in product(*ranges)]
    all_values.sort(key=lambda values: directed(packing, values))
    assert [packing.pack(values) for values in all_values] == list(range(packing.count))


def test_a_score_has_at_most_2_to_the_53_values() -> None:
    """Fields that need more values are refused, and the message shows the calculation."""
    half = Field(name="half", low=-1, high=2**52 - 2)
    assert Packing((half, Field(name="side", sort_order="asc", high=1))).count == 2**53
    with pytest.raises(ValueError, match="takes") as caught:
        Packing(
            (
                Field(name="levels", high=99),
                REVIVES,
                Field(name="time", sort_order="asc", low=1, high=10**12),
            )
        )
    assert str(caught.value) == (
        "levels 0..99 × revives 0..99 × time 1..1000000000000 takes 100 × 100 × 1000000000000 = "  # noqa: RUF001
        "10000000000000000 values, more than the 2^53 = 9007199254740992 that a score can hold exactly"
    )
    with pytest.raises(ValueError, match="takes") as caught:
        Packing((Field(name="points", high=2**53),))
    assert str(caught.value) == (
        "points 0..9007199254740992 takes 9007199254740993 values, "
        "more than the 2^53 = 9007199254740992 that a score can hold exactly"
    )


def test_ambiguous_fields_are_refused() -> None:
    """There must be a field, and names must be unique."""
    with pytest.raises(ValueError, match=r"^no fields$"):
        Packing(())
    with pytest.raises(ValueError, match=r"^field levels is repeated$"):
        Packing((LEVELS, TIME, Field(name="levels", sort_order="asc", low=5, high=6)))


@pytest.mark.parametrize("name", ["", "a" * 65, "1st", "_a", "Levels", "a-b", "a b", "a\n", "\u00e9", "a\u0661"])
def test_a_field_has_a_plain_name(name: str) -> None:
    """The message shows the name, and says what a name is."""
    (mistake,) = Field(name=name, high=1).mistakes()
    assert mistake.startswith(f"the field {name!r} is not a name: write 1 to 64 of a-z, 0-9 and _")


def test_a_field_has_a_range() -> None:
    """A range of one value is enough; an empty range is refused."""
    assert Packing((Field(name="only", sort_order="asc", low=7, high=7),)).pack({"only": 7}) == 0
    assert list(Field(name="time", low=8, high=7).mistakes()) == [
        "the field time 8..7 is empty: its minimum is above its maximum"
    ]


@pytest.mark.parametrize("value", [-1, 100, 10**400, True, False, 1.0, float("nan"), "1", None])
@pytest.mark.parametrize("field", [LEVELS, REVIVES])
def test_a_value_out_of_range_is_refused(field: Field, value: Any) -> None:
    """The message names the field and its range. Booleans and floats are not whole numbers."""
    values = {"levels": 1, "revives": 1, "time": 1, field.name: value}
    with pytest.raises(ValueError, match=f"^{field.name} is not a whole number from 0 to 99$"):
        GAME.pack(values)


def test_all_fields_are_required_and_no_others() -> None:
    """The message names a missing field with its range, or an unknown field with the known fields."""
    with pytest.raises(ValueError, match=r"^time is missing; expected a whole number from 0 to 9999$"):
        GAME.pack({"levels": 1, "revives": 1})
    with pytest.raises(ValueError, match=r"^levels is missing; expected a whole number from 0 to 99$"):
        GAME.pack({"Levels": 1, "revives": 1, "time": 1})
    with pytest.raises(ValueError, match="unknown field") as caught:
        GAME.pack({"levels": 1, "lives": 1, "revives": 1, "time": 1})
    assert str(caught.value) == "unknown field 'lives'; the fields are levels 0..99, revives 0..99, time 0..9999"


@pytest.mark.parametrize("score", [-1, GAME.count, 2**60])
def test_an_invalid_score_is_not_unpacked(score: int) -> None:
    """No field values belong to such a score."""
    with pytest.raises(ValueError, match=f"^{score} is not a score of these fields: scores go from 0 to 99999999$"):
        GAME.unpack(score)


def test_packings_are_values() -> None:
    """Packings with equal fields are equal and hash equally. A file can define them."""
    assert msgspec.convert(msgspec.to_builtins(GAME), Packing) == GAME
    assert len({GAME, Packing((LEVELS, REVIVES, TIME)), Packing((REVIVES, LEVELS, TIME))}) == 2


POINTS = Field(name="points", high=114)
DIFFERENCE = Field(name="difference", low=-200, high=200)
FOULS = Field(name="fouls", sort_order="asc", high=300)
LEAGUE = SumPacking((POINTS, DIFFERENCE, FOULS))


@st.composite
def sums(draw: st.DrawFn) -> SumPacking:
    """Fields that add up, in a window with any number of slots."""
    parts, fields, left = draw(st.integers(1, 100)), list[Field](), MAX_VALUES
    for name in draw(st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True), min_size=1, max_size=5, unique=True)):
        most = (left // (6 * max(parts, 3))) or 0
        low, high = draw(st.integers(0, min(most, 50)) | st.integers(0, most)), draw(st.integers(0, min(most, 50)))
        field = Field(name=name, sort_order=draw(st.sampled_from(["desc", "asc"])), low=-low, high=high)
        (radix,) = SumPacking((field,), parts).radixes
        if radix <= left:
            fields.append(field)
            left //= radix
    return SumPacking(tuple(fields or [Field(name="a", high=1)]), parts)


@pytest.mark.slow
@given(st.data())
def test_sums_of_slots_can_be_unpacked(data: st.DataObject) -> None:
    """Each slot holds totals within the bounds. The score of the slots together has the sum of each field."""
    packing = data.draw(sums())
    slots = data.draw(st.lists(values_for(packing), min_size=1, max_size=packing.parts))
    score = sum(map(packing.pack, slots))
    totals = {field.name: sum(slot[field.name] for slot in slots) for field in packing.fields}
    assert abs(score) < MAX_VALUES / 2
    assert packing.unpack(score) == totals
    other = data.draw(values_for(packing))
    assert (score < packing.pack(other)) == (directed(packing, totals) < directed(packing, other))


@pytest.mark.slow
@given(st.data())
def test_an_amount_that_leaves_the_bounds_is_noticed(data: st.DataObject) -> None:
    """Amounts are judged by each field, whatever carries into other digits."""
    packing = data.draw(sums())
    held = data.draw(values_for(packing))
    span = {field.name: st.integers(field.low - field.high, field.high - field.low) for field in packing.fields}
    amount = data.draw(st.fixed_dictionaries(span))
    after = {name: held[name] + amount[name] for name in held}
    is_within = all(field.low <= after[field.name] <= field.high for field in packing.fields)
    assert packing.within(packing.pack(held), packing.pack(amount)) == is_within
    assert packing.unpack(packing.pack(held) + packing.pack(amount)) == after


def test_events_leave_a_sliding_window_one_by_one() -> None:
    """The amounts of a field that are below zero take up room, because the others may leave first."""
    goals = SumPacking((POINTS, Field(name="goals", high=2)), 3)
    assert [goals.below(goals.pack({"points": 3, "goals": number})) for number in (2, -2)] == [0, 2]
    up, down = goals.pack({"goals": 2}), goals.pack({"goals": -2})
    assert goals.within(up, down, goals.below(up))
    assert not goals.within(up, down, goals.below(down))
    assert not goals.within(0, down, 0)


def test_totals_of_a_table_add_up() -> None:
    """A field that is left out adds 0, and a total may fall."""
    score = LEAGUE.pack({"points": 3, "difference": 2}) + LEAGUE.pack({"difference": -5, "fouls": 4})
    assert LEAGUE.unpack(score) == {"points": 3, "difference": -3, "fouls": 4}
    assert LEAGUE.unpack(0) == {"points": 0, "difference": 0, "fouls": 0}
    assert LEAGUE.can_add(score, score)
    assert not LEAGUE.can_add(LEAGUE.pack({"points": 114}), LEAGUE.pack({"points": 1}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"points": 115}, "points is not a whole number from -114 to 114"),
        ({"fouls": True}, "fouls is not a whole number from -300 to 300"),
        ({"points": 1, "goals": 1}, "unknown field 'goals'; the fields are points 0..114, difference -200..200, "),
        ({}, "there is no field; the fields are points 0..114, difference -200..200, fouls 0..300"),
    ],
)
def test_amounts_that_no_total_can_change_by_are_refused(values: Mapping[str, int], message: str) -> None:
    """The message says what is allowed."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        LEAGUE.pack(values)


def test_totals_need_room() -> None:
    """Fields that need more values than a score has are refused, and the message shows the calculation."""
    with pytest.raises(ValueError, match="takes") as caught:
        SumPacking((POINTS, Field(name="goals", high=10**9)), 1000)
    assert str(caught.value) == (
        "points 0..114 × goals 0..1000000000 takes 228001 × 2000000000001 = 456002000000228001 values, "  # noqa: RUF001
        "more than the 2^53 = 9007199254740992 that a score can hold exactly"
    )
    with pytest.raises(ValueError, match="begins"):
        SumPacking((Field(name="points", low=1, high=9),))
    with pytest.raises(ValueError, match="not a score"):
        LEAGUE.unpack(LEAGUE.count)
