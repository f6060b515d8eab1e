"""Everyday utility tools: tools that sessions of any subject tend to use, and the words of requests that imply them.

Tools are recognized by their names and descriptions alone, without a model.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property, lru_cache
from typing import Final

from riglm.domain.retrieval.words import split_name

MAX_CATALOG: Final = 1_000
"""Maximum number of tools among which a request implies one; in a larger catalog too many tools are of one kind."""

MAX_IMPLIED: Final = 5
"""Maximum number of tools that one request implies."""

_ELSEWHERE: Final = 0.4
"""Factor for a name that also names a product or a subject, such as `github-get_file_contents`."""

_DESCRIBED: Final = 0.7
"""Factor for a tool that is recognized by its description only."""

_FILE_KINDS: Final = frozenset(range(5))  # the first of _KINDS: read, list, write, run, edit
_MIN_KINDS: Final = 3
_MAX_NAME_LENGTH: Final = 128
_MAX_DESCRIPTION_LENGTH: Final = 200
_MAX_REQUEST_LENGTH: Final = 8_000

_READ: Final = r"(?:read|get|view|open|show|display|return|retrieve|extract)s?"
_WRITE: Final = r"(?:write|create|save|overwrite|append)s?"
_FIND: Final = r"(?:search|find|glob|look|list|get)(?:s|es)?"
_RUN: Final = r"(?:run|execute|start)s?"
_A: Final = r"(?:(?:a|an|the|any|new|some|all|complete|entire|specified|given|local|detailed|multiple) )*"
_ENGINE: Final = r"(?:brave|tavily|exa|google|bing|duckduckgo|ddg|serper|searxng|kagi|perplexity|jina)"
_WORD: Final = re.compile(r"\w+")
_GENERAL: Final = (
    r"(?:mcp|server|local|file ?systems?|fs|files?|desktop|commander|system|os|host|tools?|utils?|utility|utilities|"
    r"text|editor|terminal|shell|cli|command|console|code|interpreter|sandbox|python|node|web|internet|online|browser|"
    r"fetch|time|date|clock|math|calc|calculator|email|emails|mail|gmail|outlook|excel|spreadsheets?|sheets?|xlsx|csv|"
    r"pdf|word|docs?|documents?|maps?|weather|calendar|memory|playwright|puppeteer|api|default|builtin|basic|[a-z]?\d*)"
)

_PATH: Final = (
    r"(?:\w\.(?:txt|md|json|csv|tsv|log|py|js|html?|ya?ml|xml|tex|bib|docx?|xlsx?|pptx?|pdf|png|jpe?g|zip)\b"
    r"|\bfiles?\b|\bworkspace\b|(?:^|\s)[~.]?/\w)"
)
_SHEET: Final = r"(?:\.xlsx?\b|\bexcel\b|\bspreadsheets?\b|\bworkbooks?\b)"
_PERIOD: Final = (
    r"(?:days?|weeks?|weekend|months?|years?|quarter|morning|evening|(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
)


class _Kind:
    """A kind of tool.

    `weight` is the prior of use in any session. `name` matches the end of a tool's name in words, `description` the
    start of its description, `request` a part of a request that implies the kind without asking for it. Names and
    descriptions that match contain one of `words`. Patterns are compiled at their first use, since compiling all of
    them would add 30 ms to each start.
    """

    def __init__(self, weight: float, words: str, name: str, description: str, request: str) -> None:
        self.weight: Final = weight
        self.words: Final = frozenset(words.split())
        self._name = name
        self._description = description
        self._request = request

    @cached_property
    def name(self) -> re.Pattern[str]:
        return re.compile(rf"(?P<rest>(?:.*? )??)(?P<core>{self._name})")

    @cached_property
    def description(self) -> re.Pattern[str]:
        return re.compile(self._description)

    @cached_property
    def request(self) -> re.Pattern[str]:
        return re.compile(self._request, re.IGNORECASE)


_NOTHING: Final = r"(?!)"
_KINDS: Final = (
    _Kind(
        1.0,
        "file files cat read view",
        rf"{_READ} (?:text |complete |local )?files?(?: contents?| text| lines?)?|cat|read|view",
        rf"{_READ} {_A}(?:(?:contents?|text|lines) (?:of|from) )?{_A}(?:text )?files?\b",
        _PATH,
    ),
    _Kind(
        1.0,
        "directory directories dir files folder ls contents",
        r"list (?:directory|directories|dir|files|folder)(?: contents?| with sizes)?|ls|dir|directory tree|"
        r"list (?:files|contents) (?:in|of) (?:directory|folder)",
        rf"lists? {_A}(?:listing of )?(?:files|contents|directory|directories)\b"
        rf"|{_READ} {_A}(?:listing|tree) of {_A}(?:files|directory)\b",
        r"\bfiles\b|\bworkspace\b|\bfolders?\b|\bdirector(?:y|ies)\b",
    ),
    _Kind(
        0.9,
        "file files write save",
        rf"{_WRITE}(?: to)? (?:text |new |local )?files?(?: contents?| text)?|write|save text",
        rf"{_WRITE} {_A}(?:(?:contents?|text|data) (?:to|into) )?{_A}(?:text )?file\b",
        r"\b(?:save|write|written|export|store|output|create|generate|record|put|fill|complete|update|add|compile|"
        rf"produce|organi[sz]e)\b[^.]{{0,100}}{_PATH}",
    ),
    _Kind(
        0.9,
        "python code shell bash terminal command commands script process cmd exec execute javascript",
        rf"{_RUN} (?:a )?(?:python|code|shell|bash|terminal|command|commands|script|process|cmd)"
        r"(?: code| command| script| line)?|bash|shell|terminal|exec|execute|"
        r"(?:python|code|shell|bash|command) (?:execute|executor|execution|run|runner|exec|interpreter)",
        rf"(?:run|execute)s? {_A}(?:arbitrary )?(?:python|javascript|bash|shell|terminal|code|commands?)\b",
        r"\b(?:rename|commands?|terminal|scripts?|python|unzip|zip|compress|archive|install|run|execute|move|copy|git|"
        r"statistics|simulate|organi[sz]e)\b",
    ),
    _Kind(
        0.6,
        "file edit replace",
        r"(?:edit|update|modify|patch)(?: text)? file|edit block|str replace(?: editor)?|edit",
        rf"(?:edit|modify|make|makes)s? {_A}(?:line based edits to {_A})?(?:text )?file\b",
        _NOTHING,
    ),
    _Kind(
        0.6,
        "search web internet",
        rf"(?:\w+ )*(?:web|internet) search(?: advanced| exa)?|(?:\w+ )*search (?:the )?(?:web|internet|online)|"
        rf"(?:{_ENGINE} )+search(?: search| web)?",
        r"(?:search(?:es)?|find|look|perform(?:s|ed)? .{0,20}search(?:es)?)\b.{0,40}\b(?:web|internet)\b",
        r"\b(?:latest|news|recent(?:ly)?|online|internet|research|search for|look up|find out|trend\w*|reviews?)\b",
    ),
    _Kind(
        0.6,
        "fetch scrape url urls webpage webpages page pages website site sites",
        r"fetch(?: url| html| markdown| txt| json| page| content| web ?page)?|(?:browse|open|visit|read) (?:url|"
        r"web ?page|website)|scrape(?: url| page)?",
        rf"(?:fetch|scrape)(?:s|es)? {_A}(?:(?:html|text|contents?) (?:of|from) )?{_A}(?:urls?|web ?pages?|sites?)\b",
        r"https?://|\bwww\.|\bweb ?(?:page|site)s?\b|\bhome ?page\b",
    ),
    _Kind(
        0.6,
        "navigate url page webpage website",
        r"browser navigate|navigate|open (?:url|page)|go to (?:url|page)",
        rf"(?:navigate|go)s? to {_A}(?:url|web ?page|page|website)\b",
        r"https?://|\bweb ?sites?\b|\bbrowser\b|\blog ?in\b",
    ),
    _Kind(
        0.5,
        "file files code grep glob find ripgrep",
        r"(?:search|find) files?(?: contents?)?|(?:search|find) (?:in files|code)|grep|glob|find|ripgrep",
        rf"(?:recursively )?(?:search|find)(?:s|es)?(?: for)? {_A}(?:files|text in files)\b",
        r"\b(?:find|search|locate|look)\b[^.]{0,60}\bfiles?\b",
    ),
    _Kind(
        0.4,
        "excel sheet spreadsheet workbook worksheet xlsx csv",
        rf"{_READ} (?:data )?(?:from )?(?:excel|sheet|spreadsheet|workbook|xlsx|csv)"
        r"(?: data| metadata| file| values| content)?",
        rf"{_READ} {_A}(?:data|contents?|values|cells?) (?:from|of) {_A}(?:excel|spreadsheet|worksheet|workbook|csv)\b",
        _SHEET,
    ),
    _Kind(
        0.4,
        "excel sheet spreadsheet workbook worksheet csv",
        r"(?:write|update) (?:data )?(?:to )?(?:excel|sheet|spreadsheet|workbook|csv)(?: data| cells)?|create workbook",
        rf"(?:write|update)s? {_A}(?:data|values|cells?) (?:to|in|into) {_A}(?:excel|spreadsheet|worksheet|workbook)\b",
        rf"\b(?:fill|update|write|record|save|add|create|enter|generate)\b[^.]{{0,100}}{_SHEET}",
    ),
    _Kind(
        0.4,
        "pdf",
        rf"{_READ} pdf(?: text| pages?| content| file)?|pdf (?:to text|reader)",
        rf"{_READ} {_A}(?:text|contents?|pages?) (?:from|of) {_A}pdf\b",
        r"\.pdf\b|\bpdfs?\b",
    ),
    _Kind(
        0.4,
        "document docx word text markdown",
        rf"{_READ} (?:document|docx|word)(?: text| content)?|(?:extract|convert).{{0,12}} (?:to )?(?:text|markdown)",
        rf"{_READ} {_A}(?:text|contents?) (?:from|of) {_A}(?:word )?(?:document|docx)\b",
        r"\.docx?\b|\bword document\b",
    ),
    _Kind(
        0.4,
        "email emails mail mails message",
        r"(?:send|compose) (?:an? )?(?:e ?mail|mail|message)(?: message)?",
        rf"sends? {_A}e-?mails?\b",
        r"\b(?:send|notify|inform|reply|forward|invite|remind)\b|\bvia e-?mail\b",
    ),
    _Kind(
        0.4,
        "email emails mail mails inbox messages",
        r"(?:search|list|read|get) (?:e ?mails?|inbox|messages)",
        rf"(?:search|list|read)(?:s|es)? (?:for )?{_A}(?:e-?mails?|inbox)\b",
        r"\be-?mails?\b|\binbox\b|\bmailbox\b",
    ),
    _Kind(
        0.4,
        "date time datetime day today now",
        r"(?:\w+ )*(?:get )?current (?:date|time|datetime|day)(?: time)?|get (?:the )?(?:date|time|today|datetime|day)"
        r"(?: time)?|today|now",
        rf"(?:this api )?{_READ} {_A}(?:current|today'?s) (?:date|time|day|local time)\b",
        r"\b(?:today|tomorrow|yesterday|tonight|now|currently)\b|\bin (?:\d+|two|three|a few) (?:day|week|month)s?\b"
        rf"|\b(?:this|next|last|past|coming|previous) (?:\d+ |few |two |three )?{_PERIOD}\b",
    ),
    _Kind(
        0.3,
        "calculate calculator evaluate compute add sum expression expressions",
        r"calculate|calculator|evaluate(?: expression)?|compute|add|sum|(?:calculate|evaluate) expression",
        rf"(?:calculate|evaluate|compute)s? {_A}(?:result of {_A})?(?:mathematical|math|arithmetic) expressions?\b",
        r"\b(?:sum|total|average|mean|percent(?:age)?|difference|ratio|calculate|compute|add up|how much)\b"
        r"|[$€£¥]\s?\d|\d\s?%",
    ),
    _Kind(
        0.3,
        "directory dir mkdir folder",
        r"(?:create|make) (?:directory|dir)|mkdir",
        rf"(?:create|make)s? {_A}(?:directory|folder)\b",
        r"\b(?:create|new|make)\b[^.]{0,40}\b(?:folder|director(?:y|ies))\b",
    ),
    _Kind(
        0.3,
        "file files workbook cd pwd mv cp directory folder",
        r"(?:move|copy|rename|delete|download) files?|get file info|get workbook metadata|cd|pwd|mv|cp",
        rf"(?:move|copy|rename)s? {_A}(?:or rename )?(?:directory|folder|files?)\b",
        _NOTHING,
    ),
    _Kind(
        0.3,
        "event events meeting",
        r"(?:create|add) (?:calendar )?(?:event|meeting)",
        rf"(?:create|add|schedule)s? {_A}(?:calendar )?events?\b",
        r"\b(?:schedule|meeting|appointment|calendar)\b",
    ),
    _Kind(
        0.3,
        "graph memory memories nodes",
        r"read graph|(?:read|search|recall) (?:memory|memories|nodes)",
        rf"{_READ} {_A}(?:knowledge graph|memory|memories)\b",
        r"\bmemory\b|\bmy (?:personal )?(?:information|info|preferences?|profile|details)\b",
    ),
    _Kind(
        0.2,
        "direction directions route routes",
        r"(?:get |search )?directions?(?: (?:driving|walking|transit|transit integrated|bicycling))?|"
        r"(?:get |plan |find |calculate )?routes?",
        rf"(?:get|find|plan|calculate|compute)s? {_A}(?:directions|route|driving route)\b",
        r"\b(?:route|directions?|drive|driving|walk(?:ing)?|transit|how far|commute|get (?:from|to))\b",
    ),
    _Kind(
        0.2,
        "weather forecast",
        r"(?:get |current )*(?:weather|forecast)(?: forecast| current| weather)?|get current weather",
        rf"{_READ} {_A}(?:current )?(?:weather|forecast)\b",
        r"\b(?:weather|rain|outdoor|picnic|hik(?:e|ing)|trip|itinerary|umbrella)\b",
    ),
    _Kind(
        0.2,
        "currency currencies amount exchange",
        r"convert (?:currency|amount)|(?:get )?(?:currency|exchange) rates?(?: convert)?|currency conver(?:t|sion|ter)",
        rf"converts? {_A}(?:amount|currency|currencies)\b",
        r"\b(?:usd|eur|gbp|jpy|cny|inr|dollars?|euros?|pounds?|yen|yuan|rupees?|exchange rate|currenc(?:y|ies))\b",
    ),
    _Kind(
        0.2,
        "unit units",
        r"(?:convert )?(?:si )?units?(?: conversion| converter)?|convert units?|convert to \w+ unit",
        rf"converts? {_A}(?:values? |measurements? )?(?:from one unit|between units|units?)\b",
        r"\b(?:miles?|kilomet(?:er|re)s?|km|kg|lbs?|gallons?|lit(?:er|re)s?|feet|inches|fahrenheit|celsius)\b",
    ),
)


_NUMBERS: Final[Mapping[str, Sequence[int]]] = {
    word: [number for number, kind in enumerate(_KINDS) if word in kind.words]
    for word in frozenset[str]().union(*(kind.words for kind in _KINDS))
}
"""The kinds that each word occurs in."""


def everyday_weights(tools: Sequence[tuple[str, str]]) -> dict[str, float]:
    """Return for each tool name how likely the tool is an everyday utility, from 0 to 1.

    `tools` are pairs of a name, with or without a server prefix, and a description. A server that reads, writes
    and lists files counts as general, regardless of its name.
    """
    return {name: weight for (name, _), (_, weight) in zip(tools, _recognize(tools), strict=True)}


class ImpliedTools:
    """Finds the everyday tools that a request needs and does not mention: a path implies reading or writing a file."""

    def __init__(self, tools: Sequence[tuple[str, str]]) -> None:
        """Recognize the tools. In a catalog beyond `MAX_CATALOG`, requests imply none."""
        self._best: dict[int, int] = {}
        weights: dict[int, float] = {}
        for place, (kind, weight) in enumerate(_recognize(tools) if len(tools) <= MAX_CATALOG else ()):
            if weight > weights.get(kind, 0.0):
                self._best[kind], weights[kind] = place, weight

    def find(self, request: str) -> list[int]:
        """Return the places of the implied tools, at most one of each kind, the most general first."""
        start = request[:_MAX_REQUEST_LENGTH]
        return [place for kind, place in sorted(self._best.items()) if _KINDS[kind].request.search(start)]


def _recognize(tools: Sequence[tuple[str, str]]) -> Iterator[tuple[int, float]]:
    """Yield the kind of each tool and how surely the tool is of it, times the weight of the kind."""
    matches = [_match_name(name[-_MAX_NAME_LENGTH:]) for name, _ in tools]
    kinds: dict[str, set[int]] = defaultdict(set)
    for kind, rest, _ in filter(None, matches):
        kinds[rest].add(kind)
    general = {rest for rest, found in kinds.items() if len(found & _FILE_KINDS) >= _MIN_KINDS or _is_general(rest)}
    for match, (_, description) in zip(matches, tools, strict=True):
        yield (
            _match_description(description[:_MAX_DESCRIPTION_LENGTH]) if match is None else _weigh_name(*match, general)
        )


@lru_cache(maxsize=8_192)
def _match_name(name: str) -> tuple[int, str, str] | None:
    """Return the kind of tool, the words before the matched ones, and the matched ones."""
    text = split_name(name).lower()
    for number in _find_candidates(text):
        if match := _KINDS[number].name.fullmatch(text):
            return number, match["rest"], match["core"]
    return None


def _weigh_name(kind: int, rest: str, core: str, general: AbstractSet[str]) -> tuple[int, float]:
    weight = _KINDS[kind].weight
    if rest in general:
        return kind, weight
    return kind, round(_ELSEWHERE * weight, 2) if " " in core else 0.0


@lru_cache(maxsize=8_192)
def _match_description(description: str) -> tuple[int, float]:
    start = " ".join(description.lower().split())
    for number in _find_candidates(start):
        kind = _KINDS[number]
        if kind.description.match(start):
            return number, round(_DESCRIBED * kind.weight, 2)
    return 0, 0.0


def _find_candidates(text: str) -> list[int]:
    """Return the kinds whose patterns may match a name or a description."""
    words = _NUMBERS.keys() & _WORD.findall(text)
    return sorted({number for word in words for number in _NUMBERS[word]})


def _is_general(rest: str) -> bool:
    return all(re.fullmatch(_GENERAL, word) for word in rest.split())
