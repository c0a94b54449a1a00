"""The OpenAPI document: what FastAPI sees of the routes, and what it cannot see.

Routes about one operation are written once in the code, and once per operation in the document, so
that a client made from it is typed: `orders.place` has its own steps and its own answer.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from api.documentation import KEY_IN_PATH, ProblemDocument, example, problem_answers
from api.problems import CATALOGUE, ProblemName
from operations.declaration import Operation, SagaOperation

GENERIC = "/v1/operations/{operation}/{key}"
CLIENT_KEY, OPERATOR_KEY = "client_key", "operator_key"
OPERATORS_TAGS = frozenset({"operating", "endpoints", "reconciliation"})
WITHOUT_KEY = ("/v1/webhooks/",)
"""Below `/v1/`, what needs no key: a provider's message is known by its signature."""

ALWAYS = (ProblemName.HEADERS_TOO_LARGE, ProblemName.INTERNAL_ERROR)
REF = "#/components/schemas/{model}"

DESCRIPTION = """\
Send an operation with an idempotency key; whatever is lost on the way, it has one net effect, and
every retry gets the same, truthful answer.

A key is new for every operation and the same on every retry of it. Problems are
[RFC 9457](https://www.rfc-editor.org/rfc/rfc9457) documents: the path in `type` explains what
happened and what to do, and `to_do` says it in one sentence.
"""

TAGS: Mapping[str, str] = {
    "reading": "Where an operation stands, its receipt, and its changes as they come.",
    "operating": "For operators: cancel an operation, decide about a step, with evidence.",
    "accounts": "The tenant's accounts: idempotent by nature, guarded by ETags.",
    "receiving": "Webhooks of providers, known by their signatures.",
    "endpoints": "For operators: where a tenant's own events are sent.",
    "reconciliation": "For operators: our half and the providers', compared.",
    "health": "For machines that watch, and pages that explain problems. Without a key.",
}

_SECURITY: dict[str, Any] = {
    CLIENT_KEY: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "tsk_<id>_<secret>",
        "description": "An API key of a tenant; its role may be `client` or `operator`.",
    },
    OPERATOR_KEY: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "tsk_<id>_<secret>",
        "description": "An API key with the role `operator`.",
    },
}
_RESULT_STATUSES = "The receipt, once there is one: its status, and its body as JSON."


def describe(app: FastAPI, operations: tuple[Operation, ...]) -> None:
    """Let `app.openapi()` be the whole document, made once."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            _add_schemas(document, [ProblemDocument, *(each.request for each in operations)])
            document["paths"] = _typed_paths(document["paths"], operations)
            _name_operations(document, operations)
            _say_who_may(document)
            tags = {**{each.name: each.title for each in operations}, **TAGS}
            document["tags"] = [{"name": name, "description": tags[name]} for name in tags]
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi


def _add_schemas(document: dict[str, Any], models: Iterable[type[BaseModel]]) -> None:
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in models:
        schema = model.model_json_schema(ref_template=REF)
        for name, definition in schema.pop("$defs", {}).items():
            schemas.setdefault(name, definition)
        schemas[model.__name__] = schema


def _name_operations(document: dict[str, Any], operations: tuple[Operation, ...]) -> None:
    """The filter of the list takes the operations there are."""
    for parameter in document["paths"]["/v1/operations"]["get"]["parameters"]:
        if parameter["name"] == "operation":
            parameter["schema"] = {"type": "string", "enum": [each.name for each in operations]}


def _say_who_may(document: dict[str, Any]) -> None:
    document["components"]["securitySchemes"] = _SECURITY
    document["components"]["examples"] = {
        name.value: {"summary": CATALOGUE[name].title, "value": example(name)}
        for name in ProblemName
    }
    for path, methods in document["paths"].items():
        for described in methods.values():
            for status, answer in problem_answers(*ALWAYS).items():
                described["responses"].setdefault(str(status), answer)
            if path.startswith("/v1/") and not path.startswith(WITHOUT_KEY):
                operators = OPERATORS_TAGS.intersection(described["tags"])
                described["security"] = [{OPERATOR_KEY if operators else CLIENT_KEY: []}]


def _typed_paths(
    paths: Mapping[str, dict[str, Any]], operations: tuple[Operation, ...]
) -> dict[str, dict[str, Any]]:
    """The paths, with those about any operation replaced by one for each operation."""
    typed = {path: methods for path, methods in paths.items() if not path.startswith(GENERIC)}
    for path, methods in paths.items():
        if not path.startswith(GENERIC):
            continue
        for operation in operations:
            own = {
                method: _typed(described, operation)
                for method, described in methods.items()
                if isinstance(operation, SagaOperation) or "operating" not in described["tags"]
            }
            if own:
                typed.setdefault(path.replace("{operation}", operation.name), {}).update(own)
    return typed


def _typed(described: Mapping[str, Any], operation: Operation) -> dict[str, Any]:
    own = copy.deepcopy(dict(described))
    own["operationId"] = f"{operation.name}.{described['operationId'].rpartition('.')[2]}"
    given = [found for found in own.get("parameters", ()) if found["name"] != "step"]
    own["parameters"] = [KEY_IN_PATH, *given]
    if own["operationId"].endswith(".resolve"):
        own["parameters"].insert(1, _step(operation))
    responses = own["responses"]
    if own["operationId"].endswith(".receipt"):
        status = str(operation.success_status)
        responses[status] = {**responses.pop("200"), "content": _json(_ref(operation.answer))}
    elif "application/json" in responses.get("200", {}).get("content", {}):
        responses["200"]["content"] = _json(_resource_of(operation))
    if "202" in responses and not isinstance(operation, SagaOperation):
        del responses["202"]
    if not isinstance(operation, SagaOperation):
        responses.pop("424", None)
    return own


def _resource_of(operation: Operation) -> dict[str, Any]:
    """The operation's resource, whose result is this operation's answer."""
    answered: dict[str, Any] = {
        "type": "object",
        "required": ["status", "body"],
        "properties": {
            "status": {"type": "integer"},
            "body": {"anyOf": [_ref(operation.answer), _ref(ProblemDocument)]},
        },
    }
    return {
        "allOf": [
            {"$ref": REF.format(model="OperationResource")},
            {
                "type": "object",
                "properties": {
                    "operation": {"type": "string", "enum": [operation.name]},
                    "result": {
                        "anyOf": [answered, {"type": "null"}],
                        "description": _RESULT_STATUSES,
                    },
                },
            },
        ]
    }


def _step(operation: Operation) -> dict[str, Any]:
    steps = operation.steps if isinstance(operation, SagaOperation) else ()
    return {
        "name": "step",
        "in": "path",
        "required": True,
        "description": "The step that is decided about.",
        "schema": {"type": "string", "enum": [step.name for step in steps]},
    }


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": REF.format(model=model.__name__)}


def _json(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": dict(schema)}}
