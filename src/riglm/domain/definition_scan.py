"""Offline scan of tool definitions for text that is meant to mislead a model, a user or a terminal.

The scan is deterministic and reads every string of a definition. It reports what it finds and changes nothing. The
rules follow published attacks on MCP clients: tool poisoning, tool shadowing, and text that people cannot see.
"""

import re
from base64 import b64decode
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple

MAX_TEXT_LENGTH: Final = 20_000
"""Characters of one string that are scanned; a longer one is itself a finding."""

MAX_DEFINITION_LENGTH: Final = 200_000
"""Characters of all strings of a definition that are scanned; more are themselves a finding."""

_MAX_DEPTH: Final = 64
_MAX_EXCERPT_LENGTH: Final = 60
_MIN_NAME_LENGTH: Final = 8


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
    """One finding: the rule, the path of the string in the definition, and the text that matched, with escapes."""

    rule: ScanRule
    path: str
    excerpt: str


_HIDDEN: Final = re.compile(
    "[\U000e0000-\U000e007f\U000e0100-\U000e01ef\u202a-\u202e\u2066-\u2069\u200b\u2060-\u2064\u180e\u115f\u1160\u3164"
    "\ue000-\uf8ff\U000f0000-\U0010fffd]+|(?<=[ -~])[\u200c\u200d]|[\u200c\u200d](?=[ -~])"
)
_FLAG: Final = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f")  # such as the flag of Scotland
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ENCODED: Final = re.compile(
    r"(?<![\w+/])(?:[0-9a-fA-F]{2}){12,}(?![\w+/])|(?<![\w+/])[A-Za-z0-9+/]{16,}={0,2}(?![\w+/=])"
)
_COMMAND: Final = re.compile(
    rb"\b(?:curl|wget|chmod|bash|powershell|nc|eval)\b|\brm -|/bin/sh|/dev/tcp|https?://|ignore|instruction"
)
_QUOTED: Final = re.compile(
    r"\b(?:(?:detect|scan|flag|explain|describ|document|check|test|guard)(?:s|es|ed|ing|ion|ation)?|identif(?:y|ies|ying)|"
    r"analy[sz](?:es?|ing)|such as|examples?|expected|mock|sample)\b[^.]{0,80}$",
    re.IGNORECASE,
)
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


def scan_definition(definition: Mapping[str, Any], other_tools: Collection[str] = ()) -> list[ScanFinding]:
    """Return what a tool definition, as decoded JSON, contains of each rule, at most one finding per rule and string.

    `other_tools` are the names of other servers' tools; short names and names of one word are not looked for.
    """
    telling = [name for name in other_tools if len(name) >= _MIN_NAME_LENGTH and re.search(r"[a-z0-9][_\-.A-Z]", name)]
    others = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in telling)) if telling else None
    found: list[ScanFinding] = []
    left = MAX_DEFINITION_LENGTH
    for path, text in _strings(definition, "", _MAX_DEPTH):
        left -= len(text)
        if left < 0:
            found.append(ScanFinding(ScanRule.LENGTH, path, f"more than {MAX_DEFINITION_LENGTH:,} characters in all"))
            break
        found += _scan_text(path, text, others)
    return found


def _scan_text(path: str, text: str, others: re.Pattern[str] | None) -> Iterator[ScanFinding]:
    if len(text) > MAX_TEXT_LENGTH:
        yield ScanFinding(ScanRule.LENGTH, path, f"{len(text):,} characters")
        text = text[:MAX_TEXT_LENGTH]
    visible = _FLAG.sub("", text).removeprefix("\ufeff")
    matches: dict[ScanRule, re.Match[str] | None] = {
        ScanRule.HIDDEN_TEXT: _HIDDEN.search(visible),
        ScanRule.CONTROL_CHARACTER: _CONTROL.search(text),
        ScanRule.ENCODED: next((found for found in _ENCODED.finditer(text) if _is_command(found[0])), None),
        **{rule: _first(rule, text) for rule in _PATTERNS},
    }
    if matches[ScanRule.OTHER_TOOL] is None and others is not None:
        matches[ScanRule.OTHER_TOOL] = others.search(text)
    for rule, match in matches.items():
        if match is not None:
            yield ScanFinding(rule, path, _excerpt(match[0]))


def _first(rule: ScanRule, text: str) -> re.Match[str] | None:
    """Return the first match of a rule; sentences that a text describes as detected or as examples do not count."""
    found = _PATTERNS[rule].finditer(text)
    if rule in {ScanRule.MARKUP, ScanRule.OTHER_TOOL}:
        return next(found, None)
    return next(
        (match for match in found if not _QUOTED.search(text, max(0, match.start() - 100), match.start())), None
    )


def _is_command(word: str) -> bool:
    """Whether a word is hexadecimal or Base64 for a command line, an address or an instruction."""
    for decode in (bytes.fromhex, partial(b64decode, validate=True)):
        try:
            decoded = decode(word)
        except ValueError:
            continue
        if _COMMAND.search(decoded) and decoded.isascii():
            return True
    return False


def _strings(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """All strings of a value with their paths; names of properties too, since models read them."""
    if isinstance(value, str):
        yield path, value
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield f"{path}.{_excerpt(key)}".lstrip("."), key
            yield from _strings(item, f"{path}.{_excerpt(key)}".lstrip("."), depth - 1)
    elif depth and isinstance(value, list):
        for at, item in enumerate(value):
            yield from _strings(item, f"{path}[{at}]", depth - 1)


def _excerpt(text: str) -> str:
    """The beginning of a text in printable ASCII."""
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= _MAX_EXCERPT_LENGTH else f"{shown[:_MAX_EXCERPT_LENGTH]}…"
