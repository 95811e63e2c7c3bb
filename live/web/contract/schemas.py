"""The schemas of the contract, made from the structs of requests and responses, with the meaning of each field."""

from collections.abc import Iterable, Mapping
from inspect import cleandoc
from typing import Any, Final

import msgspec

from live.domain.meaning import METADATA
from live.errors import PROBLEMS, REFUSALS

Json = dict[str, Any]

REFERENCE: Final = "#/components/schemas/{name}"
_NAMES: Final = {"Choices": "BoardChoice", "IncomingEvent": "Event"}  # for some structs, another name of the schema
_referred: Final[dict[str, type]] = {}


def components_of(structs: Iterable[type], template: str = REFERENCE) -> Json:
    """Make the schemas of structs by name, with the meaning of each field. `template` makes references."""
    _, found = msgspec.json.schema_components(structs, ref_template=template)
    components = {_NAMES.get(name, name): schema for name, schema in found.items()}
    for name, schema in components.items():
        schema["title"] = name
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])  # a docstring
        for field, spec in schema.get("properties", {}).items():
            default = spec.get("default")
            if not isinstance(default, bool | int) and (not default or isinstance(default, dict)):
                spec.pop("default", None)  # for example null, which the schema of the field does not allow
            spec.setdefault("description", "Type of the message.")
            if field == "metadata":
                spec["type"] = "object"
    return components


def contract_components() -> Json:
    """Make the schemas to which the operations refer, including the schemas of bodies that are not structs."""
    components = components_of(_referred.values())
    components["ProblemBody"]["properties"]["code"]["enum"] = list(PROBLEMS)
    refusal = components["Rejection"]["properties"]["code"]
    refusal["enum"] = list(REFUSALS)
    refusal["description"] = listed(REFUSALS)
    summary = components["BoardSummary"]
    summary["required"] = list(summary["properties"])  # a summary leaves out no default
    for schema in summary["properties"].values():
        schema.pop("default", None)
    choices = components["BoardChoice"]
    del choices["properties"]["id"]  # the id is in the path
    choices["required"].remove("id")
    components["BoardPatch"] = {
        "title": "BoardPatch",
        "type": "object",
        "description": "A JSON Merge Patch (RFC 7396) with the choices to change. Null restores a default.",
        "properties": {
            name: {
                "description": schema["description"],
                "anyOf": [{part: schema[part] for part in schema if part not in {"description", "default"}},
                          {"type": "null"}],
            }
            for name, schema in choices["properties"].items()
        },
        "additionalProperties": False,
    }  # fmt: skip
    components["Metadata"] = {
        "title": "Metadata",
        "type": "object",
        "description": METADATA.description,
        "additionalProperties": True,
    }
    components["CloudEvent"]["propertyNames"] = {"pattern": "^([a-z0-9]+|data_base64)$"}
    return components


def reference(struct: type | str) -> Json:
    """Refer to the schema of a struct, which the contract then has, or to a schema by name."""
    name = struct if isinstance(struct, str) else struct.__name__
    if not isinstance(struct, str):
        _referred[name] = struct
    return {"$ref": REFERENCE.format(name=_NAMES.get(name, name))}


def listed(meanings: Mapping[str, str]) -> str:
    """List codes and their meanings in Markdown."""
    return "\n".join(f"- `{code}`: {meaning}." for code, meaning in meanings.items())
