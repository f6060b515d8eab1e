"""Texts that look as if chance had made them: keys, tokens and identifiers, and what is no plain word."""

import re
from typing import Final

_BETWEEN_WORDS: Final = re.compile(r"[-_.~@+:,=/ ]+")
_WORD: Final = re.compile(r"[A-Za-z]?[a-z]*|[A-Z]{1,4}")
_HUMPS: Final = re.compile(r"[a-z]{2,}(?:[A-Z][a-z]+){1,3}")
_NUMBERED: Final = re.compile(r"[A-Za-z][a-z]{0,11}\d{1,2}|\d{1,5}|v\d{1,4}")
_UNSPEAKABLE: Final = re.compile(r"[^aeiouy]{5}", re.IGNORECASE)
_KEY: Final = re.compile(r"(?:[spr]k|gh[opsu]|glpat|hf|xox[abprs])[-_]|github_pat_|AKIA|AIza|ya29")
"""How keys of well-known services begin."""

_LONGEST_WORD: Final = 22
_MOST_WORDS: Final = 8


def looks_random(text: str) -> bool:
    """Whether a text is anything else than a few words, versions and short numbers with signs between them.

    In doubt it is: who hides what is harmless loses less than who shows a key.
    """
    words = [word for word in _BETWEEN_WORDS.split(text) if word]
    return begins_like_a_key(text) or len(words) > _MOST_WORDS or not all(map(_is_plain, words))


def begins_like_a_key(text: str) -> bool:
    """Whether a text begins as the keys of well-known services do."""
    return _KEY.match(text) is not None


def _is_plain(word: str) -> bool:
    if _NUMBERED.fullmatch(word):
        return True
    if len(word) > _LONGEST_WORD or not (_WORD.fullmatch(word) or _HUMPS.fullmatch(word)):
        return False
    vowels = sum(word.lower().count(vowel) for vowel in "aeiouy")
    return len(word) < 6 or (5 * vowels >= len(word) and not _UNSPEAKABLE.search(word))
