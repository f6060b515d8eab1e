"""Offline scan of tool definitions for text that is meant to mislead a model, a user or a terminal.

The scan is deterministic and reads every string of a definition, as it is and as a model may read it. It reports what
it finds and changes nothing. The rules follow published attacks on MCP clients: tool poisoning, tool shadowing, and
text that people cannot see.
"""

import codecs
import html
import re
import sys
from base64 import b32decode, b64decode
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from riglm.domain.plain_spelling import plain_spelling

MAX_TEXT_LENGTH: Final = 20_000
"""Characters of one string that are scanned; a longer one is itself a finding."""

MAX_DEFINITION_LENGTH: Final = 200_000
"""Characters of all strings of a definition that are scanned; more are themselves a finding."""

_MAX_DEPTH: Final = 64
_MAX_EXCERPT_LENGTH: Final = 60
_MAX_DECODED: Final = 3
_MIN_NAME_LENGTH: Final = 8
_MIN_ENCODED: Final = 16
_MAX_SHORT: Final = 64
_TEXTS: Final = frozenset({"description", "title"})
_SCHEMA_WORDS: Final = frozenset(
    {"array", "boolean", "integer", "null", "number", "object", "string", "inputSchema", "type", "properties", "items"}
    | {"title", "description", "default", "const", "enum", "examples", "required", "format", "additionalProperties"}
)
"""Texts between the parts of one that is split over names or values."""
_MAX_WORDS_OF_NAME: Final = 4
"""A longer name of a property may be an instruction."""
_MAX_WORDS: Final = 200
"""Encoded words of one text that are decoded."""


class ScanRule(StrEnum):
    """What a finding is about."""

    HIDDEN_TEXT = "hidden text"
    CONTROL_CHARACTER = "control character"
    MARKUP = "markup"
    INSTRUCTION = "instruction to the model"
    SECRET = "request for a secret"  # noqa: S105  # a name
    OTHER_TOOL = "reference to another server's tool"
    ENCODED = "encoded command"
    LENGTH = "excessive length"


class ScanFinding(NamedTuple):
    """One finding: the rule, the path of the string in the definition, and the text that matched, with escapes.

    The path of a text that is split over several strings is `*`.
    """

    rule: ScanRule
    path: str
    excerpt: str


_Place = tuple["_Place", str | int] | None
"""Where a string is in a definition: the place around it, and the key or index in that; None for the definition."""


class _String(NamedTuple):
    """A string of a definition, None if it is nested too deeply; `kind` is names, descriptions or values."""

    text: str | None
    place: _Place
    kind: str

    @property
    def path(self) -> str:
        """The path, such as `inputSchema.properties.a.enum[1]`."""
        parts: list[str] = []
        place = self.place
        while place is not None:
            place, key = place
            parts.append(f"[{key}]" if isinstance(key, int) else f".{_excerpt(key)}")
        return "".join(reversed(parts)).lstrip(".")


_HIDDEN: Final = re.compile(
    "[\U000e0000-\U000e0fff\u202a-\u202e\u2060-\u206f\u200b\u180e\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5"
    "\u2800\ufeff\ufff0-\ufffb\U0001d173-\U0001d17a\ue000-\uf8ff\U000f0000-\U0010fffd]+"
    r"|(?<![^\W\d_]{2})\xad|\xad(?![^\W\d_]{2})"  # between letters, it is where a word may be hyphenated
    "|(?<=[ -~])[\u200c\u200d\u180b-\u180f]|[\u200c\u200d\u180b-\u180f](?=[ -~])"
    '|(?<![^ -"$-)+-/:-~\ufe00-\ufe0f])[\ufe00-\ufe0f]'  # emoji and digits have one variation selector
)
_DIRECTION_MARK: Final = re.compile("[\u200e\u200f\u061c]")
_RIGHT_TO_LEFT: Final = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_FLAG: Final = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f")  # such as the flag of Scotland
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ESCAPE: Final = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\u\{([0-9a-fA-F]{1,6})\}|\\U([0-9a-fA-F]{8})|\\x([0-9a-fA-F]{2})"
    r"|\bU\+([0-9a-fA-F]{4,6})\b ?"
)
_HEX: Final = re.compile(r"(?<![0-9a-zA-Z])(?:(?:0x|\\x|=)?[0-9a-fA-F]{2}[ ,:;_-]{0,2}){12,}(?![0-9a-zA-Z])")
_CODES: Final = re.compile(r"(?<![\w.])(?:[0-9]{2,3}[ ,;]{1,2}){11,}[0-9]{2,3}(?![\w.])")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]{16,}|[A-Za-z0-9_-]{16,}")
_BASE64_LINES: Final = re.compile(r"(?<!\S)(?:[A-Za-z0-9+/_-]{16,128}\s{1,8}){1,200}[A-Za-z0-9+/_-]{2,}")
_BASE64_GROUPS: Final = re.compile(
    r"(?<!\S)(?:"
    + "|".join(rf"(?:[A-Za-z0-9+/_-]{{{n}}}\s){{{max(4, 18 // n)},}}" for n in range(2, 16))
    + r")[\w+/-]{2,15}"
)
_BASE32: Final = re.compile(r"(?<![A-Za-z0-9])[A-Z2-7]{24,}(?![A-Za-z0-9])")
_PRINTABLE: Final = re.compile(rb"[\t\n\r -~]{6,}")
_COMMAND: Final = re.compile(
    r"\b(?:curl|wget|chmod|bash|powershell|nc|eval)\b|\brm -|/bin/sh|/dev/tcp|https?://|ignore|instruction",
    re.IGNORECASE,
)
_DESCRIBING: Final = (
    r"\b(?:(?:detect|scan|flag|explain|describ|document|check|test|guard|block|filter)(?:s|es|ed|ing|ion|ation)?"
    r"|identif(?:y|ies|ying)|analy[sz](?:es?|ing)|such as|examples?|e\.g\.|expected|mock|sample)\b"
)
_QUOTED: Final = re.compile(
    rf"{_DESCRIBING}[^.]{{0,80}}(?<!\w)(['\"`\u2018\u201c\u00ab])[^'\"`\u2019\u201d\u00bb]{{0,200}}\Z", re.IGNORECASE
)
"""What is before a phrase in quotes that a text describes, or gives as an example."""
_CLOSING: Final[Mapping[str, str]] = {"\u2018": "\u2019", "\u201c": "\u201d", "\u00ab": "\u00bb"}
_OBJECT: Final = re.compile(
    r"\b(?:(?:detect|scan|flag|check|test|guard|block|filter)(?:s|es|ing)?|identif(?:y|ies|ying)|analy[sz](?:es?|ing)) "
    r"(?:(?!(?:and|then|or|but|also|while|please|must|should|always|you|your)\b)[\w-]+ ){0,6}?"
    r"(?:(?:prompt|text|message|string|input|phrase|instruction|document|comment|payload|request|user|agent|tool)s? "
    r"(?:that|which|to)|(?:try|tries|trying|attempts?|attempting|asks?|asking)(?: [\w-]+){0,3} to) (?:\w+ly )?\Z",
    re.IGNORECASE,
)
"""What is before a phrase that is the object of a verb such as `detects`."""
_USER: Final = r"(?:the |this |your )?(?:user|human|operator|person|anyone|customer)s?"
_SENSITIVE: Final = (
    r"(?:private keys?|ssh keys?|api[ _-]?keys?|access tokens?|credentials?|passwords?|secrets?|environment variables|"
    r"\.env\b|clipboard|conversation (?:history|context)|(?:chat|message) history|system (?:prompt|instructions?))"
)
_PATTERNS: Final[Mapping[ScanRule, re.Pattern[str]]] = {
    ScanRule.MARKUP: re.compile(
        r"<\s*/?\s*(?:important|system|secret|hidden|instructions?|assistant|critical|admin|script|iframe)\b[^>]{0,80}>"
        r"|<!--[^<]{0,400}?(?:instruct|ignore|must|secret|always|call|send|read)[^<]{0,400}?-->"
        r"|\[/?INST\]|<\|(?:im_start|im_end|system|user|assistant)\|>|javascript:|!\[[^\]]{0,80}\]\(https?://"
        r"|#{2,}\s*(?:system|instructions?)\s*:|\{\{\s*system\b|\A\s*[\[(*]+(?:important|critical|system)[\])*]+",
        re.IGNORECASE | re.DOTALL,
    ),
    ScanRule.INSTRUCTION: re.compile(
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,30}\b(?:previous|prior|above|earlier|all|other|system|safety|"
        r"policy|policies)\b.{0,20}\b(?:instructions?|prompts?|rules?|guidelines?|context|messages?|directions?|constraints?|"
        r"polic(?:y|ies)|checks?)\b"
        r"|\b(?:ignore|disregard|forget)\b.{0,12}\b(?:the above|everything above|what was said|the user's)\b"
        rf"|\b(?:do not|don'?t|never|without|avoid|refrain from)\b.{{0,20}}\b(?:tel+(?:ing)?|mention|mentioning|inform|"
        rf"informing|notify|notifying|reveal|revealing|disclose|disclosing|alert|alerting)\b.{{0,25}}\b{_USER}\b"
        rf"|\bnever (?:be )?mention(?:ed)?\b.{{0,20}}\b{_USER}\b"
        rf"|\b(?:hide|conceal|keep)\b.{{0,30}}\b(?:secret|hidden|from)\b.{{0,10}}\b{_USER}\b"
        r"|\bbefore (?:using|calling|invoking|running) (?:this|any|every|other|all)\b.{0,40}\b(?:read|send|fetch|cat|"
        r"open|upload|pass)\b"
        r"|\b(?:you are now|act as if you|new instructions?:|system (?:prompt|override):)"
        r"|\bnote to (?:the )?(?:assistant|model|agent|ai|llm)\b|\bhidden (?:directive|instruction|command|payload)s?\b"
        r"|\b(?:silently|secretly|covertly|stealthily)\b.{0,30}\b(?:add|append|include|send|upload|copy|forward|log|"
        r"execute|run|read|collect|redirect|embed|post|bcc)\b|\bexfiltrat",
        re.IGNORECASE | re.DOTALL,
    ),
    ScanRule.SECRET: re.compile(
        r"(?:~|\$HOME|/root|/home/\w+|%USERPROFILE%)[/\\]\.(?:ssh|aws|gnupg|kube|docker|netrc|npmrc|pypirc|config[/\\]gcloud"
        r"|cursor|claude|codeium|bash_history|zsh_history)\b"
        r"|\bid_(?:rsa|ed25519|ecdsa)\b|/etc/(?:passwd|shadow|sudoers)\b|\.aws/credentials\b|\.ssh/|\bmcp\.json\b"
        rf"|\b(?:send|append|attach|upload|leak|steal|harvest|reveal|post|forward|embed)\b[^.]{{0,40}}{_SENSITIVE}",
        re.IGNORECASE | re.DOTALL,
    ),
    ScanRule.OTHER_TOOL: re.compile(
        r"\b(?:supersedes?|hijacks?|intercepts?|impersonates?|modif(?:y|ies) the behaviou?r of)\b.{0,20}"
        r"\b(?:tools?\b|[a-z]+_[a-z_]+)"
        r"|\b(?:the|any) [a-z]+_[a-z_]+ tool\b.{0,60}\b(?:instead|always|first|attacker|replace|reroute|redirect)"
        r"|\b(?:when|whenever|before|instead of) (?:using |calling |the )?[a-z]+_[a-z_]+\b[^.]{0,60}"
        r"\b(?:always|copy|instead|log|reroute|redirect|bcc|first)\b"
        r"|\buse this (?:tool|function)\b[^.]{0,20}\b(?:rather than|instead of|no matter|over) (?:any |all |the )*"
        r"(?:others?|how|what|which)\b"
        r"|\bbefore (?:execut|call|us|runn|invok|perform)\w+ [^.]{0,40}\boperations?, (?:execute|call|use|run|invoke) "
        r"this (?:tool|function)\b",
        re.IGNORECASE | re.DOTALL,
    ),
}

_SQUASHED: Final[Mapping[ScanRule, re.Pattern[str]]] = {  # of texts without blanks and punctuation
    ScanRule.INSTRUCTION: re.compile(
        r"(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|bypass(?:ing)?)(?:all|any|every|everything|the|these|those|your|my|of|other){0,3}"
        r"(?:previous|prior|above|earlier|preceding|system|safety|security)(?:and|or|user|system|safety|previous|given){0,2}"
        r"(?:instruction|prompt|rule|guideline|message|direction|polic|context|constraint|check)"
        r"|(?:donot|dont|never|without|avoid)(?:ever)?(?:tel+|inform|notify|alert|mention|reveal|disclos)(?:ing|e)?"
        r"(?:this|it|that|anything|about|of|any|step){0,3}(?:to)?(?:the|your|this)?(?:user|human|operator)"
        r"|(?:hide|conceal|keep)(?:this|it|that|them)(?:a)?(?:secret|hidden)?from(?:the|your)?(?:user|human|operator)"
        r"|(?:silently|secretly|covertly)(?:send|forward|upload|copy|append|read|execute|run|bcc|post|includ|exfiltrat|collect)"
    ),
    ScanRule.SECRET: re.compile(
        r"sshid(?:rsa|ed25519|ecdsa)|etcpasswd(?![a-z])"
        r"|(?<!re)(?:send|append|attach|upload|leak|steal|forward)(?:the|your|all|any|their|users|contents|content|of|its){0,4}"
        r"(?:privatekey|sshkey|apikey|accesstoken|credentials|password|environmentvariables|sshid|systemprompt)"
    ),
}
_SEPARATORS: Final = re.compile(r"(?<=[a-z0-9])[_.*~+|-]+(?=[a-z0-9])")
_LEET: Final = re.compile(r"[a-z][013457@$!]+[a-z]|(?<!\S)[013457@$!][a-z]{2}")
_LEET_LETTERS: Final = tuple(str.maketrans("013457@$!", f"o{one}eastas{one}") for one in "il")
_TURNED: Final = tuple(
    turned
    for word in {"instruction", "previous", "ignore", "theuser"}
    | {"password", "apikey", "credential", "privatekey", "sshid"}
    for turned in (word[::-1], codecs.encode(word, "rot13"))
)
"""Words of attacks, backwards and in ROT13."""

_NOT_SQUASHED: Final = bytes(code for code in range(128) if not chr(code).isalnum())


class OtherTools:
    """The names of all servers' tools, to find those of other servers in a text.

    The time to search a text does not depend on the number of names. Short names and names of one word are left out.
    """

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        """`names` are those of the tools by server."""
        self._servers: defaultdict[str, set[str]] = defaultdict(set)
        self._places: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
        """Where names begin relative to their first word, and their lengths, by that word."""
        for server, owned in names.items():
            for name in owned:
                if len(name) >= _MIN_NAME_LENGTH and re.search(r"[a-z0-9][_\-.A-Z]", name):
                    first = _NAME_WORD.search(name)
                    if first is not None:
                        self._servers[name].add(server)
                        self._places[first[0]].add((first.start(), len(name)))

    def find(self, text: str, server: str) -> str | None:
        """Return the first name in a text that a tool of another server has, and none of `server`."""
        for word in _NAME_WORD.finditer(text) if self._places else ():
            for offset, length in self._places.get(word[0], ()):
                start, end = word.start() - offset, word.start() - offset + length
                name = text[max(0, start) : end]
                servers = self._servers.get(name)
                if servers is not None and server not in servers and not _is_part(text, start, end):
                    return name
        return None


_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_NAME_WORD: Final = re.compile(r"[\w-]+")


def _is_part(text: str, start: int, end: int) -> bool:
    """Whether a name at this place of a text is a part of a longer one."""
    return start < 0 or any(_NAME_WORD.match(each) for each in (text[start - 1 : start], text[end : end + 1]) if each)


def scan_definition(
    definition: Any, other_tools: OtherTools | Collection[str] = (), server: str = ""
) -> list[ScanFinding]:
    """Return what a tool definition, as decoded JSON, contains of each rule, at most one finding per rule and string.

    `other_tools` are the names of other servers' tools, or those of all servers if `server` has the tool.
    """
    others = other_tools if isinstance(other_tools, OtherTools) else OtherTools({"other": other_tools})
    found: list[ScanFinding] = []
    left = MAX_DEFINITION_LENGTH
    read: list[_String] = []
    for each in _strings(definition):
        if each.text is None:
            found.append(ScanFinding(ScanRule.LENGTH, each.path, f"nested more than {_MAX_DEPTH} levels deep"))
            break
        left -= len(each.text)
        if left < 0:
            words = f"more than {MAX_DEFINITION_LENGTH:,} characters in all"
            found.append(ScanFinding(ScanRule.LENGTH, each.path, words))
            break
        read.append(each)
    pieces = _pieces(read)
    switches = {name for name in pieces["names"] if _is_switch(name)}
    if switches:
        named = re.compile(rf"\b(?:{'|'.join(switches)})\b")
        read = [each._replace(text=named.sub("", each.text or "")) for each in read]
        pieces = _pieces(read)
    for each in read:
        found += _scan_text(each, others, server)
    reported = {each.rule for each in found}
    for texts in pieces.values():
        if len(texts) > 1:
            found += (each for each in _scan_joined(texts) if each.rule not in reported)
            reported |= {each.rule for each in found}
    return found


def _pieces(strings: Iterable[_String]) -> dict[str, list[str]]:
    """Return the texts of each kind that may be parts of one."""
    pieces: dict[str, list[str]] = {"names": [], "descriptions": [], "values": []}
    for each in strings:
        if each.text and each.text not in _SCHEMA_WORDS:
            pieces[each.kind].append(each.text)
    return pieces


def _is_switch(name: str) -> bool:
    """Whether the name of a property only resembles an instruction, such as `ignore_all_rules`."""
    is_short = name.isidentifier() and name.isascii() and len(_WORD.findall(name)) <= _MAX_WORDS_OF_NAME
    return is_short and set(_find_meanings(name)) == {ScanRule.INSTRUCTION}


def _scan_text(part: _String, others: OtherTools, server: str) -> Iterator[ScanFinding]:
    text = part.text or ""
    if len(text) > MAX_TEXT_LENGTH:
        yield ScanFinding(ScanRule.LENGTH, part.path, f"{len(text):,} characters")
        text = text[:MAX_TEXT_LENGTH]
    matches: dict[ScanRule, str] = {}
    if not text.isascii():
        visible = _FLAG.sub("", text).removeprefix("\ufeff")
        hidden = _HIDDEN.search(visible)
        if hidden is None and not _RIGHT_TO_LEFT.search(visible):
            hidden = _DIRECTION_MARK.search(visible)
        if hidden is not None:
            matches[ScanRule.HIDDEN_TEXT] = hidden[0]
    if not text.isprintable() and (control := _CONTROL.search(text)):
        matches[ScanRule.CONTROL_CHARACTER] = control[0]
    matches |= _find_meanings(text)
    if ScanRule.OTHER_TOOL not in matches:
        name = others.find(text, server) or (None if text.isascii() else others.find(plain_spelling(text), server))
        if name is not None:
            matches[ScanRule.OTHER_TOOL] = name
    yield from (ScanFinding(rule, part.path, _excerpt(match)) for rule, match in matches.items())


def _scan_joined(texts: Sequence[str]) -> Iterator[ScanFinding]:
    """Report what several strings of a definition contain together."""
    for separator in (" ", ""):
        joined = separator.join(texts)[:MAX_TEXT_LENGTH]
        for rule, match in _find_meanings(joined).items():
            is_weak = rule is ScanRule.OTHER_TOOL or (
                rule is ScanRule.SECRET and match is not None and "/" not in match
            )
            if match is not None and not is_weak and not any(match in each for each in texts):
                yield ScanFinding(rule, "*", _excerpt(match))


def _find_meanings(text: str) -> Mapping[ScanRule, str]:
    """Return what a text contains of each rule, in any spelling and encoding."""
    return _find_in_short(text) if len(text) <= _MAX_SHORT else _find_in(text)


def _find_in(text: str) -> Mapping[ScanRule, str]:
    decoded = _decoded(text)
    plain = plain_spelling(decoded)
    spaced = _SEPARATORS.sub(" ", plain)
    readings = [text, *(each for each in (decoded, plain) if each not in {text, text.lower()})]
    further = [spaced] if spaced != plain else []
    if _LEET.search(plain):
        further += [spaced.translate(letters) for letters in _LEET_LETTERS]
    found: dict[ScanRule, str] = {}
    for rule in (ScanRule.ENCODED, *_PATTERNS):
        match = _find_encoded(decoded, _MAX_DECODED) if rule is ScanRule.ENCODED else _first(rule, readings)
        if match is None and rule in _SQUASHED:
            match = _first(rule, further) or _first_squashed(rule, [spaced, *further])
        if match is not None:
            found[rule] = match
    return found


_find_in_short: Final = lru_cache(maxsize=8192)(_find_in)  # names and keywords occur in many tools


def _first(rule: ScanRule, readings: Iterable[str]) -> str | None:
    """Return the first match of a rule; phrases that a text describes as detected or as examples do not count."""
    has_quotes = rule not in {ScanRule.MARKUP, ScanRule.OTHER_TOOL}
    for text in readings:
        for match in _PATTERNS[rule].finditer(text):
            if not has_quotes or not _is_quoted(match):
                return match[0]
    return None


def _is_quoted(match: re.Match[str]) -> bool:
    """Whether a text describes a phrase, in quotes or as an object: other words in front of it change nothing."""
    before = match.string[max(0, match.start() - 300) : match.start()]
    quoted = _QUOTED.search(before)
    if quoted is None or (quoted[1] in '"`' and match.string.count(quoted[1], 0, match.start()) % 2 == 0):
        return _OBJECT.search(before) is not None
    closing = re.escape(_CLOSING.get(quoted[1], quoted[1]))
    return re.compile(rf"[^{closing}]{{0,200}}{closing}(?!\w)").match(match.string, match.end()) is not None


def _first_squashed(rule: ScanRule, readings: Iterable[str]) -> str | None:
    """Return the first match of a rule in a text whose words are torn apart or run together."""
    for text in readings:
        rest = _PATTERNS[rule].sub(" ", text)  # only quoted ones are left
        if match := _SQUASHED[rule].search(_squash(rest)):
            return match[0]
    return None


def _squash(text: str) -> str:
    """Return the letters and digits of a text."""
    return text.encode("ascii", "ignore").translate(None, _NOT_SQUASHED).decode()


def _decoded(text: str) -> str:
    """Return a text without percent encoding, HTML entities, and escapes of programming languages."""
    for _ in range(_MAX_DECODED):
        before = text
        if "\\" in text or "U+" in text:
            text = _ESCAPE.sub(_escaped, text)
        if "&" in text:
            text = html.unescape(text)
        if "%" in text:
            text = unquote(text, errors="replace")
        text = text.replace("\xad", "")
        if text == before:
            break
    return text


def _escaped(match: re.Match[str]) -> str:
    code = int(next(filter(None, match.groups())), 16)
    return chr(code) if code <= sys.maxunicode and not 0xD800 <= code < 0xE000 else match[0]


def _find_encoded(text: str, depth: int) -> str | None:
    """Return the first word that encodes a command line, an address or what another rule finds."""
    if len(text) < _MIN_ENCODED:
        return None
    for word, data in _encoded_words(text):
        decoded = " ".join(part.decode("ascii") for part in _PRINTABLE.findall(data.replace(b"\0", b"")))
        if not decoded:
            continue
        is_found = _COMMAND.search(decoded) or any(_first(rule, [decoded, decoded.lower()]) for rule in _PATTERNS)
        if is_found or any(_first_squashed(rule, [decoded.lower()]) for rule in _SQUASHED):
            return word
        if depth > 1 and _find_encoded(decoded, depth - 1):
            return word
    return None


def _encoded_words(text: str) -> Iterator[tuple[str, bytes]]:
    """Yield the words of a text that may be hexadecimal, character codes, Base64 or Base32, with what they encode.

    A text that is written backwards or in ROT13 is one word.
    """
    if any(map(_squash(text.lower()).__contains__, _TURNED)):
        yield from ((text, each.encode("ascii", "replace")) for each in (text[::-1], codecs.encode(text, "rot13")))
    for word in islice(_HEX.finditer(text), _MAX_WORDS):
        digits = re.sub(r"0x|\\x|[^0-9a-fA-F]", "", word[0])
        yield word[0], bytes.fromhex(digits[: len(digits) // 2 * 2])
    for word in islice(_CODES.finditer(text), _MAX_WORDS):
        yield word[0], bytes(code for code in map(int, re.findall("[0-9]+", word[0])) if code < 128)
    for word in islice(_BASE64.finditer(text), _MAX_WORDS):
        for start in range(4):  # behind other characters of the alphabet
            letters = word[0][start:].replace("-", "+").replace("_", "/")
            letters = letters[: len(letters) - (len(letters) % 4 == 1)]
            yield word[0], b64decode(letters + "=" * (-len(letters) % 4))
    for words in islice(chain(_BASE64_LINES.finditer(text), _BASE64_GROUPS.finditer(text)), _MAX_WORDS):
        letters = "".join(words[0].split()).replace("-", "+").replace("_", "/")
        yield words[0], b64decode(letters[: len(letters) // 4 * 4])
    for word in islice(_BASE32.finditer(text), _MAX_WORDS):
        letters = word[0][: len(word[0]) // 8 * 8]
        yield word[0], b32decode(letters)


def _strings(definition: Any) -> Iterator[_String]:
    """All strings of a value in their order; names of properties too, since models read them.

    A text that is nested too deeply is None.
    """
    waiting: list[tuple[Any, _Place, str, int]] = [(definition, None, "values", 0)]
    while waiting:
        value, place, kind, depth = waiting.pop()
        if isinstance(value, str):
            yield _String(value, place, kind)
        elif depth == _MAX_DEPTH:
            if _has_text(value):
                yield _String(None, place, kind)
        elif isinstance(value, dict):
            below = []
            for key, item in value.items():
                inner = (place, key)
                below.append((key, inner, "names", depth))
                below.append((item, inner, "descriptions" if key in _TEXTS else "values", depth + 1))
            waiting += reversed(below)
        elif isinstance(value, list):
            waiting += reversed([(item, (place, at), kind, depth + 1) for at, item in enumerate(value)])


def _has_text(value: Any) -> bool:
    values = [value]
    while values:
        value = values.pop()
        if isinstance(value, str) or (isinstance(value, Mapping) and value):
            return True
        if isinstance(value, list):
            values += value
    return False


def _excerpt(text: str) -> str:
    """The beginning of a text in printable ASCII."""
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= _MAX_EXCERPT_LENGTH else f"{shown[:_MAX_EXCERPT_LENGTH]}…"
