"""Query parameters: one struct for each route reads the query of a request, and describes it in the contract.

The type of a field says how its text is read. Its `Meta` has the description and the bounds. The `extra` of the `Meta`
can have

- `read`: a function that makes the value of a text, or raises ValueError;
- `valid`: what the value must be, in words;
- `schema`: what the contract says of the text, where it differs from the value.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, NamedTuple, Self, cast

import msgspec
from msgspec import Meta, inspect
from starlette.datastructures import QueryParams

from live.domain.text import unknown
from live.errors import ProblemError

_MOST: Final = 128  # parameters of a request; the longest list of members has 100 members
_MOST_DIGITS: Final = 16


def require_few(target: bytes) -> None:
    """Refuse a target with many parameters before they are parsed. Parsing them would take long."""
    if target.partition(b"?")[2].count(b"&") >= _MOST:
        raise ProblemError("parameter_invalid", f"a request may have at most {_MOST} parameters")


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a route. This class itself is for routes without parameters."""

    @classmethod
    def read(cls, query: Mapping[str, str], others: Collection[str] = ()) -> Self:
        """Read the query of a request, which may have `others` too."""
        fields = fields_of(cls)
        for name in query:
            if name not in fields and name not in others:  # a typing mistake is not ignored
                raise ProblemError("parameter_invalid", unknown("parameter", name, [*fields, *others]))
        read = {field.attribute: field.read(query) for name, field in fields.items() if name in query or field.required}
        return cls(**read)


class ParameterField(NamedTuple):
    """A field of `Parameters`: the name of the parameter, and how its text is read."""

    name: str
    attribute: str
    kind: inspect.Type
    extra: Mapping[str, Any]
    required: bool

    def read(self, query: Mapping[str, str]) -> object:
        """Read the parameter in a query. A required number or list is read from a query without it too."""
        name, kind = self.name, self.kind
        match kind:
            case _ if "read" in self.extra:
                return self._made(query[name], self.extra["read"], self.extra.get("valid"))
            case inspect.IntType():
                valid = self.extra.get("valid")
                return whole_number(query.get(name, ""), name, kind.ge or 0, kind.le or 10**_MOST_DIGITS, valid)
            case inspect.ListType():
                texts = cast("QueryParams", query).getlist(name)
                self._require_length(len(texts), kind.min_length or 0, kind.max_length or _MOST, "give {} {} times")
                return texts
            case inspect.BoolType():
                return self._made(query[name], {"true": True, "false": False}.__getitem__, "true or false")
            case inspect.LiteralType():
                words = [str(word) for word in kind.values]
                return self._made(query[name], {word: word for word in words}.__getitem__, " or ".join(words))
            case inspect.StrType():
                text, most = query[name], kind.max_length
                self._require_length(len(text), kind.min_length or 0, most, "{} must have {} characters")
                return text
        raise TypeError(f"no parameter can be {kind}")

    def _made(self, text: str, make: Callable[[str], object], valid: str | None) -> object:
        try:
            return make(text)
        except (ValueError, KeyError) as error:
            detail = f"`{self.name}` must be {valid}" if valid else f"`{self.name}`: {error}"
            raise ProblemError("parameter_invalid", detail) from None

    def _require_length(self, length: int, least: int, most: int | None, refusal: str) -> None:
        if length < least or (most is not None and length > most):
            valid = f"{least} to {most}" if least else f"at most {most}"
            raise ProblemError("parameter_invalid", refusal.format(f"`{self.name}`", valid))


@cache
def fields_of(kind: type[Parameters]) -> Mapping[str, ParameterField]:
    """Return the fields of a struct, by the name of the parameter."""
    found = {}
    for field in cast("inspect.StructType", inspect.type_info(kind)).fields:
        bare, extra = field.type, dict[str, Any]()
        while isinstance(bare, inspect.Metadata | inspect.UnionType):
            if isinstance(bare, inspect.Metadata):
                extra |= bare.extra or {}
                bare = bare.type
            else:
                bare = next(part for part in bare.types if not isinstance(part, inspect.NoneType))
        found[field.encode_name] = ParameterField(field.encode_name, field.name, bare, extra, field.required)
    return found


def whole_number(text: str, name: str, least: int, most: int, valid: str | None = None) -> int:
    """Read a parameter that is a whole number in a range."""
    if is_whole(text.removeprefix("-") if least < 0 else text) and least <= int(text) <= most:
        return int(text)
    raise ProblemError("parameter_invalid", f"`{name}` must be {valid or f'a whole number from {least} to {most}'}")


def is_whole(text: str) -> bool:
    """Tell whether a text is a whole number without a sign, short enough for `int`."""
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS


def time_of(text: str) -> int:
    """Read a time such as `2026-11-22T12:00:00Z`, in milliseconds since 1970."""
    try:
        time = datetime.fromisoformat(text)
        moment = None if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:  # UTC can't express the time
        moment = None
    if moment is None:
        raise ValueError(text)
    return round(moment.timestamp() * 1000)


VALID_TIME: Final = "a time with its zone, such as 2026-11-22T12:00:00Z"
Time = Annotated[
    int,
    Meta(extra={"read": time_of, "valid": VALID_TIME, "schema": {"type": "string", "format": "date-time"}}),
]
