"""Offline scan of tool definitions for text that is meant to mislead a model, a user or a terminal.

The scan is deterministic and reads every string of a definition. It reports what it finds and changes nothing. The
rules follow published attacks on MCP clients: tool poisoning, tool shadowing, and text that people cannot see.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

MAX_TEXT_LENGTH: Final = 20_000
"""Characters of one string that are scanned; a longer one is itself a finding."""

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
    LENGTH = "excessive length"


class ScanFinding(NamedTuple):
    """One finding: the rule, the path of the string in the definition, and the text that matched, with escapes."""

    rule: ScanRule
    path: str
    excerpt: str


_HIDDEN: Final = re.compile(
    "[\U000e0000-\U000e007f\U000e0100-\U000e01ef\u202a-\u202e\u2066-\u2069\u200b\u2060-\u2064\u180e\u115f\u1160\u3164]+"
)
_FLAG: Final = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{3,6}\U000e007f")  # such as the flag of Scotland
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_USER: Final = r"(?:the |this |your )?(?:user|human|operator|person|anyone|customer)s?"
_PATTERNS: Final[Mapping[ScanRule, re.Pattern[str]]] = {
    ScanRule.MARKUP: re.compile(
        r"<\s*/?\s*(?:important|system|secret|hidden|instructions?|assistant|critical|admin|script|iframe)\b[^>]{0,80}>"
        r"|<!--.{0,400}?(?:instruct|ignore|must|secret|always|call|send|read).{0,400}?-->"
        r"|\[/?INST\]|<\|(?:im_start|im_end|system|user|assistant)\|>|javascript:|!\[[^\]]{0,80}\]\(https?://",
        re.IGNORECASE | re.DOTALL,
    ),
    ScanRule.INSTRUCTION: re.compile(
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,30}\b(?:previous|prior|above|earlier|all|other|system|safety)\b"
        r".{0,20}\b(?:instructions?|prompts?|rules?|guidelines?|context|messages?)\b"
        rf"|\b(?:do not|don'?t|never|without|avoid|refrain from)\b.{{0,20}}\b(?:tel+(?:ing)?|mention|mentioning|inform|"
        rf"informing|notify|notifying|reveal|revealing|disclose|disclosing|alert|alerting)\b.{{0,25}}\b{_USER}\b"
        rf"|\b(?:hide|conceal|keep)\b.{{0,30}}\b(?:secret|hidden|from)\b.{{0,10}}\b{_USER}\b"
        r"|\bbefore (?:using|calling|invoking|running) (?:this|any|every|other|all)\b.{0,40}\b(?:read|send|fetch|cat|"
        r"open|upload|pass)\b"
        r"|\b(?:you are now|act as if you|new instructions?:|system (?:prompt|override):)"
        r"|\b(?:instead of|do not use|never use|rather than)\b.{0,30}\b(?:other|any other|another) "
        r"(?:servers?|tools?)'?s?\b.{0,40}\b(?:always|only|must)\b",
        re.IGNORECASE | re.DOTALL,
    ),
    ScanRule.SECRET: re.compile(
        r"(?:~|\$HOME|/root|/home/\w+|%USERPROFILE%)[/\\]\.(?:ssh|aws|gnupg|kube|docker|netrc|npmrc|pypirc|config[/\\]gcloud"
        r"|cursor|claude|codeium|bash_history|zsh_history)\b"
        r"|\bid_(?:rsa|ed25519|ecdsa)\b|/etc/(?:passwd|shadow|sudoers)\b|\.aws/credentials\b|\.ssh/|\bmcp\.json\b"
        r"|\b(?:read|send|pass|include|attach|provide|exfiltrate|upload|leak)\b.{0,40}\b(?:private keys?|ssh keys?|"
        r"environment variables|\.env\b|conversation history|chat history|system prompt|credentials file)",
        re.IGNORECASE | re.DOTALL,
    ),
}


def scan_definition(definition: Mapping[str, Any], other_tools: Collection[str] = ()) -> list[ScanFinding]:
    """Return what a tool definition, as decoded JSON, contains of each rule, at most one finding per rule and string.

    `other_tools` are the names of other servers' tools; short names and names of one word are not looked for.
    """
    telling = [name for name in other_tools if len(name) >= _MIN_NAME_LENGTH and re.search(r"[a-z0-9][_\-.A-Z]", name)]
    others = re.compile("|".join(rf"(?<![\w-]){re.escape(name)}(?![\w-])" for name in telling)) if telling else None
    return [found for path, text in _strings(definition, "", _MAX_DEPTH) for found in _scan_text(path, text, others)]


def _scan_text(path: str, text: str, others: re.Pattern[str] | None) -> Iterator[ScanFinding]:
    if len(text) > MAX_TEXT_LENGTH:
        yield ScanFinding(ScanRule.LENGTH, path, f"{len(text):,} characters")
        text = text[:MAX_TEXT_LENGTH]
    visible = _FLAG.sub("", text).removeprefix("\ufeff")
    matches = {
        ScanRule.HIDDEN_TEXT: _HIDDEN.search(visible),
        ScanRule.CONTROL_CHARACTER: _CONTROL.search(text),
        **{rule: pattern.search(text) for rule, pattern in _PATTERNS.items()},
        ScanRule.OTHER_TOOL: others.search(text) if others is not None else None,
    }
    for rule, match in matches.items():
        if match is not None:
            yield ScanFinding(rule, path, _excerpt(match[0]))


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
