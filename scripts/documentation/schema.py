"""JSON Schemas of what the tool writes and prints, made from the dataclasses of the records and their comments."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from inductor_bench.records.base import IN_RECORD, Form
from inductor_bench.records.evidence import Evidence
from inductor_bench.records.run import Timeline
from inductor_bench.records.summary import ErrorReport, Summary, ToolAnswer
from inductor_bench.report.document_summary import name_schema, name_schema_file
from inductor_bench.report.table_documents import QUERY_SCHEMA

from .fields import Field, about, fields_of, is_inline, kinds_in
from .record import DOCUMENTS, Document, in_markdown

DIALECT = "https://json-schema.org/draft/2020-12/schema"

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", Path: "string"}

ROWS = {
    "$schema": DIALECT,
    "$id": QUERY_SCHEMA,
    "title": "Query rows",
    "description": "The answer of `query --format json`.",
    "type": "object",
    "properties": {
        "schema": {"const": QUERY_SCHEMA, "description": "The name of this schema."},
        "rows": {
            "type": "array",
            "items": {"type": "object"},
            "description": "An object for each row, with the names of its columns.",
        },
    },
    "required": ["schema", "rows"],
}
"""What a query prints, whose columns are the user's."""


FILES = (
    Document("The evidence of a run", "`evidence.json` in a RUN folder: what was observed, for this tool.", Evidence),
    Document("The timeline of a step", "`traces/step.timeline.json` in a RUN folder.", Timeline),
)
"""Files that no command prints, without a section of ``docs/record.md``. Keys at their defaults may be left out."""


WITHOUT_SUMMARY = (Summary, ErrorReport, ToolAnswer)
"""What is printed as it is."""


def schema_files() -> dict[str, str]:
    """The text of each schema by the name of its file."""
    files = {f"{name_schema_file(one.root)}.json": schema_of(one) for one in (*DOCUMENTS, *FILES)}
    files["query-rows.json"] = ROWS
    return {name: json.dumps(schema, indent=1, ensure_ascii=False) + "\n" for name, schema in files.items()}


def schema_of(document: Document) -> dict[str, Any]:
    """The schema of a file, and of what ``--format json`` prints of it."""
    root = document.root
    head = {
        "$schema": DIALECT,
        "$id": name_schema(root),
        "title": root.__name__,
        "description": in_markdown(f"{document.heading}. {document.origin}"),
    }
    if document.is_list:
        defined = {kind.__name__: object_schema(kind) for kind in kinds_in(root)}
        return {**head, "type": "array", "items": {"$ref": f"#/$defs/{root.__name__}"}, "$defs": defined}
    printed: dict[str, Any] = {"schema": {"const": name_schema(root), "description": "The name of this schema."}}
    others = [kind for kind in kinds_in(root) if kind is not root]
    if document in FILES:
        printed = {}
    elif root not in WITHOUT_SUMMARY:
        printed["summary"] = {"$ref": f"#/$defs/{Summary.__name__}", "description": "What the screen says."}
        others += kinds_in(Summary)
    own = object_schema(root)
    return {
        **head,
        **own,
        "description": head["description"],
        "properties": {**printed, **own["properties"]},
        "$defs": {kind.__name__: object_schema(kind) for kind in others},
    }


@functools.cache  # the most kinds are in several schemas
def object_schema(kind: Any) -> dict[str, Any]:
    """The schema of an object. Keys that a newer version adds are allowed."""
    return {
        "description": in_markdown(about(kind)),
        "type": "object",
        "properties": {one.name: field_schema(one) for one in fields_of(kind)},
        "required": list(_required(kind)),
    }


def _required(kind: Any) -> Iterator[str]:
    """The keys without a default. Records of older versions may lack the others."""
    inline = {one.name: get_args(one.hint)[0] for one in _inline_fields(kind)}
    for item in fields(kind):
        if item.name in inline:
            yield from _required(inline[item.name]) if item.default is MISSING else ()
        elif item.metadata.get(IN_RECORD, True) and item.default is MISSING and item.default_factory is MISSING:
            yield item.name


def _inline_fields(kind: Any) -> Iterator[Field]:
    hints = get_type_hints(kind, include_extras=True)
    return (Field(name, hint, "") for name, hint in hints.items() if is_inline(hint))


def field_schema(field: Field) -> dict[str, Any]:
    """The schema of a key, with its meaning and unit."""
    said = in_markdown(field.meaning)
    unit = f"In {field.unit}." if field.unit and field.unit not in said else ""
    found = type_schema(field.hint)
    inner = found.pop("description", "")
    return {**found, "description": " ".join(filter(None, (said, unit, f"{inner}." if inner else "")))}


def type_schema(hint: Any) -> dict[str, Any]:
    """The schema of a type of a field."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        form = next((part for part in parts if isinstance(part, Form)), None)
        return {**type_schema(parts[0]), **({"description": form.name.capitalize()} if form else {})}
    if origin in (Union, UnionType):
        return _union([part for part in parts if part is not NoneType], nullable=NoneType in parts)
    if origin is tuple:
        return _list(parts)
    if origin is not None and issubclass(origin, Mapping):
        values = type_schema(parts[1])
        return {"type": "object", "additionalProperties": values or True}
    if hint is Any:
        return {}
    if is_dataclass(hint):
        return {"$ref": f"#/$defs/{hint.__name__}"}  # type: ignore[union-attr]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"type": "string", "examples": [one.value for one in hint]}  # a newer version may have more
    return {"type": PLAIN[hint]}


def _union(parts: list[Any], *, nullable: bool) -> dict[str, Any]:
    schemas = [type_schema(part) for part in parts]
    if len(schemas) == 1 and nullable and "type" in schemas[0]:
        return {**schemas[0], "type": [schemas[0]["type"], "null"]}
    options = [*schemas, *([{"type": "null"}] if nullable else [])]
    return options[0] if len(options) == 1 else {"anyOf": options}


def _list(parts: tuple[Any, ...]) -> dict[str, Any]:
    if Ellipsis in parts:
        items = type_schema(parts[0])
        return {"type": "array", **({"items": items} if items else {})}
    items = [type_schema(part) for part in parts]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(parts)}
