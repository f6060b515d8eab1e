"""Everyday utility tools: tools that sessions of any subject tend to use, recognized by their words alone."""

import re
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from riglm.domain.retrieval.words import split_name

_ELSEWHERE: Final = 0.4
"""Factor for a name that also names a product or a subject, such as `github-get_file_contents`."""

_DESCRIBED: Final = 0.7
"""Factor for a tool that is recognized by its description only."""

_FILE_KINDS: Final = frozenset(range(5))  # the first of _KINDS: read, list, write, run, edit
_MIN_KINDS: Final = 3
_MAX_NAME_LENGTH: Final = 128
_MAX_DESCRIPTION_LENGTH: Final = 200

_READ: Final = r"(?:read|get|view|open|show|display|return|retrieve)s?"
_WRITE: Final = r"(?:write|create|save|overwrite|append)s?"
_FIND: Final = r"(?:search|find|glob|look)(?:s|es)?"
_RUN: Final = r"(?:run|execute|start)s?"
_A: Final = r"(?:(?:a|an|the|any|new|some|complete|entire|specified|given|local|detailed|multiple) )*"
_ENGINE: Final = r"(?:brave|tavily|exa|google|bing|duckduckgo|ddg|serper|searxng|kagi|perplexity|jina)"
_GENERAL: Final = re.compile(
    r"(?:mcp|server|local|file ?systems?|fs|files?|desktop|commander|system|os|host|tools?|utils?|utility|utilities|"
    r"text|editor|terminal|shell|cli|command|console|code|interpreter|sandbox|python|node|web|internet|online|browser|"
    r"fetch|time|date|clock|math|calc|calculator|email|emails|mail|gmail|outlook|excel|spreadsheets?|sheets?|xlsx|csv|"
    r"pdf|word|docs?|documents?|api|default|builtin|basic|[a-z]?\d*)"
)

_KINDS: Final[tuple[tuple[float, str, str], ...]] = (
    # weight, the end of the name in words, the start of the description
    (
        1.0,
        rf"{_READ} (?:text |complete |local )?files?(?: contents?| text| lines?)?|cat|read|view",
        rf"{_READ} {_A}(?:(?:contents?|text|lines) (?:of|from) )?{_A}(?:text )?files?\b",
    ),
    (
        1.0,
        r"list (?:directory|directories|dir|files|folder)(?: contents?| with sizes)?|ls|dir|directory tree|"
        r"list (?:files|contents) (?:in|of) (?:directory|folder)",
        rf"lists? (?:all )?{_A}(?:listing of )?(?:files|contents|directory|directories)\b"
        rf"|{_READ} {_A}(?:listing|tree) of {_A}(?:files|directory)\b",
    ),
    (
        0.9,
        rf"{_WRITE}(?: to)? (?:text |new |local )?files?(?: contents?| text)?|write|save text",
        rf"{_WRITE} {_A}(?:(?:contents?|text|data) (?:to|into) )?{_A}(?:text )?file\b",
    ),
    (
        0.9,
        rf"{_RUN} (?:a )?(?:python|code|shell|bash|terminal|command|commands|script|process|cmd)"
        r"(?: code| command| script| line)?|bash|shell|terminal|exec|execute|"
        r"(?:python|code|shell|bash|command) (?:execute|executor|execution|run|runner|exec|interpreter)",
        rf"{_RUN} {_A}(?:arbitrary )?(?:python|javascript|bash|shell|terminal|code|commands?)\b",
    ),
    (
        0.6,
        r"(?:edit|update|modify|patch)(?: text)? file|edit block|str replace(?: editor)?|edit",
        rf"(?:edit|modify|make|makes)s? {_A}(?:line based edits to {_A})?(?:text )?file\b",
    ),
    (
        0.6,
        rf"(?:\w+ )*(?:web|internet) search(?: advanced| exa)?|(?:\w+ )*search (?:the )?(?:web|internet|online)|"
        rf"(?:{_ENGINE} )+search",
        rf"(?:{_FIND}|perform(?:s|ed)? {_A}(?:web )?search(?:es)?)\b.{{0,40}}\b(?:web|internet)\b",
    ),
    (
        0.6,
        r"fetch(?: url| html| markdown| txt| json| page| content| web ?page)?|(?:browse|open|visit|read) (?:url|"
        r"web ?page|website)|scrape(?: url| page)?|browser navigate|navigate",
        rf"(?:fetch|scrape)(?:s|es)? {_A}(?:(?:html|text|contents?) (?:of|from) )?{_A}(?:urls?|web ?pages?|sites?)\b",
    ),
    (
        0.5,
        rf"{_FIND} files?(?: contents?)?|{_FIND} (?:in files|code)|grep|glob|find|ripgrep",
        rf"(?:recursively )?{_FIND}(?: for)? {_A}(?:files|text in files)\b",
    ),
    (
        0.4,
        rf"{_READ} (?:data )?(?:from )?(?:excel|sheet|spreadsheet|workbook|xlsx|csv|pdf|document|docx)"
        r"(?: data| text| pages?| metadata| file| values| content)?|get workbook metadata|"
        r"(?:extract|convert).{0,12} (?:to )?(?:text|markdown)",
        rf"{_READ} {_A}(?:data|text|content|contents|pages?|values|cells?) (?:from|of) {_A}"
        r"(?:excel|spreadsheet|worksheet|workbook|pdf|csv|document)\b",
    ),
    (
        0.4,
        r"(?:send|compose) (?:an? )?(?:e ?mail|mail|message)|(?:search|list|read|get) (?:e ?mails?|inbox|messages)",
        rf"(?:send|search|list|read)(?:s|es)? (?:for )?{_A}(?:e-?mails?|inbox)\b",
    ),
    (
        0.4,
        r"(?:\w+ )*(?:get )?current (?:date|time|datetime|day)(?: time)?|get (?:the )?(?:date|time|today|"
        r"datetime|day)(?: time)?|today|now",
        rf"{_READ} {_A}(?:current|today'?s) (?:date|time|day|local time)\b",
    ),
    (
        0.3,
        r"calculate|calculator|evaluate(?: expression)?|compute|add|sum|(?:calculate|evaluate) expression",
        rf"(?:calculate|evaluate|compute)s? {_A}(?:result of {_A})?(?:mathematical|math|arithmetic) expressions?\b",
    ),
    (
        0.3,
        r"(?:create|make) (?:directory|dir|folder)|mkdir|(?:move|copy|rename|delete|download) files?|get file info|"
        r"(?:write|update) (?:data )?(?:to )?(?:excel|sheet|spreadsheet|workbook|csv)|create workbook|cd|pwd|mv|cp",
        rf"(?:create|make|move|copy|rename)s? {_A}(?:or rename )?(?:directory|folder|files?)\b",
    ),
)
_BY_NAME: Final = tuple(re.compile(rf"(?P<rest>(?:.*? )??)(?P<core>{name})") for _, name, _ in _KINDS)
_BY_DESCRIPTION: Final = tuple((weight, re.compile(start)) for weight, _, start in _KINDS)


def everyday_weights(tools: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Return for each tool name how likely the tool is an everyday utility, from 0 to 1.

    `tools` are pairs of a name, with or without a server prefix, and a description. A server that reads, writes
    and lists files counts as general whatever its name.
    """
    matches = {name: _match(split_name(name[-_MAX_NAME_LENGTH:]).lower()) for name, _ in tools}
    kinds: dict[str, set[int]] = defaultdict(set)
    for kind, rest, _ in filter(None, matches.values()):
        kinds[rest].add(kind)
    general = {rest for rest, found in kinds.items() if len(found & _FILE_KINDS) >= _MIN_KINDS or _is_general(rest)}
    return {
        name: _described(description) if (match := matches[name]) is None else _named(*match, general)
        for name, description in tools
    }


def _match(words: str) -> tuple[int, str, str] | None:
    """Return the kind of tool, the words before the matched ones, and the matched ones."""
    for kind, pattern in enumerate(_BY_NAME):
        if match := pattern.fullmatch(words):
            return kind, match["rest"], match["core"]
    return None


def _named(kind: int, rest: str, core: str, general: AbstractSet[str]) -> float:
    weight = _KINDS[kind][0]
    if rest in general:
        return weight
    return round(_ELSEWHERE * weight, 2) if " " in core else 0.0


def _described(description: str) -> float:
    start = " ".join(description[:_MAX_DESCRIPTION_LENGTH].lower().split())
    weight = max((weight for weight, pattern in _BY_DESCRIPTION if pattern.match(start)), default=0.0)
    return round(_DESCRIBED * weight, 2)


def _is_general(rest: str) -> bool:
    return all(_GENERAL.fullmatch(word) for word in rest.split())
