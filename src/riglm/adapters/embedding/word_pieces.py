"""The tokenizer of BERT's uncased models, in the standard library.

The reference, the package `tokenizers`, brings a client of a model hub: 34 MB of installed packages for one function.
"""

import json
import re
import unicodedata
from pathlib import Path
from typing import Final

_MAX_WORD_LENGTH: Final = 100
_IDEOGRAPHS: Final = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
_DROPPED: Final = {"Cc", "Cf", "Co"}
_ALONE: Final = re.compile(f"([{_IDEOGRAPHS}])")
_ASCII_WORDS: Final = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")


class WordPieces:
    """Splits texts into the pieces of a vocabulary.

    Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", with WordPiece of Wu et al.
    2016, "Google's Neural Machine Translation System".
    """

    def __init__(self, file: Path, max_tokens: int) -> None:
        """Read the vocabulary from a `tokenizer.json`; a text has at most `max_tokens` tokens, with its two ends."""
        described = json.loads(file.read_text(encoding="utf-8"))
        self._vocabulary: dict[str, int] = described["model"]["vocab"]
        self._prefix: str = described["model"]["continuing_subword_prefix"]
        self._special: dict[str, int] = {each["content"]: each["id"] for each in described["added_tokens"]}
        self._split = re.compile("(" + "|".join(map(re.escape, self._special)) + ")").split
        self._max_pieces = max_tokens - 2

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text's tokens, the first and the last of which mark its ends."""
        found: list[int] = []
        for part in self._split(text):
            if part in self._special:
                found.append(self._special[part])
                continue
            for word in _words(part):
                if len(found) >= self._max_pieces:
                    break
                found += self._pieces(word)
        return [self._special["[CLS]"], *found[: self._max_pieces], self._special["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        """The longest pieces that make up a word, from its beginning; `[UNK]` if there are none."""
        vocabulary, start, found = self._vocabulary, 0, []
        while start < len(word) <= _MAX_WORD_LENGTH:
            prefix = self._prefix if start else ""
            for end in range(len(word), start, -1):
                piece = vocabulary.get(prefix + word[start:end])
                if piece is not None:
                    found.append(piece)
                    start = end
                    break
            else:
                break
        return found if start == len(word) else [self._special["[UNK]"]]


def _words(text: str) -> list[str]:
    """Lower-case words without accents; each punctuation mark and ideograph is a word."""
    if text.isascii():
        return _ASCII_WORDS.findall(_cleaned(text).lower())
    spaced = _ALONE.sub(r" \1 ", _cleaned(text))
    plain = (char for char in unicodedata.normalize("NFD", spaced) if unicodedata.category(char) != "Mn")
    lower = "".join(char.lower() for char in plain)
    return "".join(f" {char} " if _is_punctuation(char) else char for char in lower).split()


def _cleaned(text: str) -> str:
    """The text with plain spaces, and without control characters."""
    return "".join(
        " " if char.isspace() else char
        for char in text
        if char in "\t\n\r" or not (unicodedata.category(char) in _DROPPED or char == "\ufffd")
    )


def _is_punctuation(char: str) -> bool:
    return (char.isascii() and char.isprintable() and not char.isalnum() and char != " ") or (
        unicodedata.category(char)[0] == "P"
    )
