"""Deterministic, realistic catalogues of any size: about 930 bytes a tool, as real ones have."""

import random
from collections.abc import Iterator
from itertools import islice, product
from typing import Any

Tool = dict[str, Any]

ECHO: Tool = {
    "name": "bench_echo",
    "description": "Return the given text unchanged. Used to measure the time a tools/call takes end to end.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "Text to return"}},
        "required": ["text"],
    },
}
SLEEP: Tool = {
    "name": "bench_sleep",
    "description": "Wait for the given number of milliseconds, then answer. Shows whether calls run at the same time.",
    "inputSchema": {
        "type": "object",
        "properties": {"ms": {"type": "integer", "minimum": 0, "maximum": 10000, "description": "How long to wait"}},
        "required": ["ms"],
    },
}

_SERVICES = (
    "github gitlab jira confluence slack notion linear asana trello figma stripe salesforce hubspot zendesk sentry "
    "datadog grafana pagerduty kubernetes docker aws gcp azure postgres mysql mongodb redis bigquery snowflake "
    "elasticsearch gmail calendar drive sheets outlook teams zoom dropbox shopify twilio"
)
_OBJECTS = (
    "issue pull_request project board page message channel document customer invoice subscription ticket alert "
    "dashboard incident deployment pod container bucket function table query index event file folder contact deal "
    "order product workflow pipeline release branch commit webhook label milestone user team"
)
_VERBS = {
    "create": "Create a new {o} in {s}. The caller must have write access; the new {o} is returned with its id.",
    "list": "List {o}s in {s}, newest first. Use the cursor of the previous answer to read the next page.",
    "get": "Fetch one {o} from {s} by its identifier, with all its fields and related links.",
    "update": "Change fields of an existing {o} in {s}. Only the fields given are changed; others keep their value.",
    "delete": "Permanently delete a {o} from {s}. This cannot be undone, so confirm with the user first.",
    "search": "Search {o}s in {s} by free text and filters. Returns the best matches with a short excerpt of each.",
    "archive": "Archive a {o} in {s} so that it no longer shows in default views, while its history stays readable.",
    "assign": "Assign a {o} in {s} to a user or a team, and notify them unless silent is set.",
    "export": "Export {o}s of {s} as CSV or JSON for a date range, and return a link that is valid for one hour.",
    "comment_on": "Add a comment to a {o} in {s}. Markdown is supported; users can be mentioned by their handle.",
}
_NOTES = (
    "Requires a token with the matching scope.",
    "Rate limited to 60 requests a minute for each user.",
    "Prefer the search tool when the identifier is not known.",
    "Times are in UTC, in ISO 8601 format.",
    "Returns an error with code NOT_FOUND when nothing matches.",
    "Do not use this for bulk changes; use the export and import tools instead.",
)
_PROPERTIES: dict[str, Any] = {
    "id": {"type": "string", "description": "Identifier of the {o}"},
    "query": {"type": "string", "description": "Free text to look for; supports quotes and a leading minus sign"},
    "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20, "description": "Most items to return"},
    "cursor": {"type": "string", "description": "Opaque cursor from the previous page"},
    "title": {"type": "string", "minLength": 1, "maxLength": 255, "description": "Title of the {o}"},
    "body": {"type": "string", "description": "Main text of the {o}, in Markdown"},
    "state": {"type": "string", "enum": ["open", "closed", "all"], "default": "open", "description": "Its state"},
    "labels": {"type": "array", "items": {"type": "string"}, "description": "Labels that the {o} has or must have"},
    "assignee": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Login of the user it belongs to"},
    "since": {"type": "string", "format": "date-time", "description": "Only items changed at or after this time"},
    "options": {
        "type": "object",
        "description": "Further options",
        "additionalProperties": False,
        "properties": {
            "notify": {"type": "boolean", "default": True, "description": "Notify the people who follow the {o}"},
            "dry_run": {"type": "boolean", "default": False, "description": "Check the request and change nothing"},
        },
    },
    "sort": {"type": "string", "enum": ["created", "updated", "priority"], "description": "Field to sort by"},
}


def make(size: int) -> list[Tool]:
    """The first `size` tools of the catalogue; the same ones every time."""
    return [ECHO, SLEEP, *islice(_invented(), max(0, size - 2))][:size]


def _invented() -> Iterator[Tool]:
    chance = random.Random(7)
    combinations = list(product(_SERVICES.split(), _VERBS, _OBJECTS.split()))
    chance.shuffle(combinations)
    for service, verb, thing in combinations:
        human = thing.replace("_", " ")
        sentences = [_VERBS[verb].format(o=human, s=service.capitalize())]
        sentences += chance.sample(_NOTES, chance.randint(0, 3))
        names = chance.sample(list(_PROPERTIES), chance.randint(2, 7))
        yield {
            "name": f"{service}_{verb}_{thing}",
            "description": " ".join(sentences),
            "inputSchema": {
                "type": "object",
                "properties": {name: _about(_PROPERTIES[name], human) for name in names},
                "required": names[: chance.randint(1, 2)],
                "additionalProperties": False,
            },
            "annotations": {
                "title": f"{verb} {human}".replace("_", " ").capitalize(),
                "readOnlyHint": verb in ("list", "get", "search", "export"),
                "destructiveHint": verb == "delete",
            },
        }


def _about(node: Any, thing: str) -> Any:
    if isinstance(node, str):
        return node.replace("{o}", thing)
    if isinstance(node, dict):
        return {key: _about(value, thing) for key, value in node.items()}
    return node
