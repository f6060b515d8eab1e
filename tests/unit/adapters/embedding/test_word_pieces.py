"""The bundled model's tokenizer gives what the reference implementation gives."""

import unicodedata

import pytest
from tokenizers import Tokenizer

from riglm.adapters.embedding.bundled import MAX_TOKENS, TOKENIZER
from riglm.adapters.embedding.word_pieces import WordPieces


@pytest.fixture(scope="module")
def own():
    return WordPieces(TOKENIZER, MAX_TOKENS)


@pytest.fixture(scope="module")
def reference():
    tokenizer = Tokenizer.from_file(str(TOKENIZER))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return tokenizer


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \t\n\x00\x1c",
        "List the issues of a repository.",
        "create_or_update-file (v2): `path`, don't overwrite; 3.5 % of 1,000",
        "[CLS] is kept, [MASK]ed and [pad] are not",
        "Éclair naïve İstanbul ΣΟΦΟΣ straße ﬁn",
        "検索する query 中文。한국어 ελληνικά العربية हिन्दी",
        "🙂 emoji ✓ → “quotes” … \u200bzero\u00adwidth\ufffd",
        "a" * 100 + " " + "b" * 101,
        "word " * 300,
        "antidisestablishmentarianism " * 60,
        "é" * 90 + "," * 300,
    ],
)
def test_tokens_of_a_text(own, reference, text):
    assert own.ids(text) == reference.encode(text).ids


def test_every_character_of_settled_category(own, reference):
    """The reference has the tables of an older Unicode than Python."""
    then, now = unicodedata.ucd_3_2_0.category, unicodedata.category
    settled = [char for char in map(chr, range(0x30000)) if then(char) == now(char) not in {"Cn", "Cs"}]
    assert len(settled) > 90_000
    for start in range(0, len(settled), 40):
        text = " ".join(f"a{char}b{char}" for char in settled[start : start + 40])
        assert own.ids(text) == reference.encode(text).ids
