# ruff: noqa: RUF001  # letters that look alike are its subject
"""The plain spelling of a text: letters that look like Latin ones replaced, and invisible characters removed."""

import re
import unicodedata
from functools import lru_cache
from typing import Final

_LOOKALIKES: Final = {
    "a": "аαɑաⲁꭺꓮʌɐəᗅ",
    "b": "вьъβƅꮟꓐᗷხɓ",
    "c": "сϲςⲥꮯꓚᴄɔͼ",
    "d": "ԁդժꭰꓓძɗ",
    "e": "еєэεⲉꭼꓰɛᴇҽ",
    "f": "ϝꓝցẝꞙք",
    "g": "ɡցԍꮐꓖɢ",
    "h": "һհнηⲏꮋꮒꓧ",
    "i": "іїӏιɩıɪⲓꭵꓲі⍳ǀ",
    "j": "јϳյȷꭻꓙ",
    "k": "кκⲕꮶꓗĸқ",
    "l": "ӏլʟꮮꓡ∣ⅼɭ",
    "m": "мμⲙꮇꓟᴍ",
    "n": "пηոռⲛꓠɴиɲ",
    "o": "оοօσⲟꓳꮎᴏ०០໐ө",
    "p": "рρⲣꮲꓑᴘþ",
    "q": "ԛգզϙ",
    "r": "гʀⲅꭱꮁꓣᴦɹг",
    "s": "ѕꮪꓢꜱʂƽտ",
    "t": "тτⲧꭲꓔтե",
    "u": "υսᴜꮜꓴμцʋ",
    "v": "νѵꮩꓦᴠ∨",
    "w": "ѡԝωաꮃꓪɯ",
    "x": "хχⲭꓫ×ҳ",
    "y": "уүγⲩꮍꓬʏყ",
    "z": "ʐꮓꓜᴢȥз",
    "-": "‐‑‒–—―−⁃",
    "'": "’‘ʼ′ʹ",
    '"': "“”„″",
    "/": "⁄∕",
    ".": "․。",
}
_TABLE: Final = {ord(alike): plain for plain, others in reversed(_LOOKALIKES.items()) for alike in others}
_LATIN: Final = re.compile(r"\bLETTER (?:[A-Z]+ )*?([A-Z])(?: WITH .*)?$")
_UNUSUAL: Final = re.compile("[^ -~]+")
_INVISIBLE: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and symbols without a shape


def plain_spelling(text: str) -> str:
    """Return a text in lower case as it reads, in ASCII where that is possible.

    Compatibility forms, accents and letters of other scripts that look like Latin ones become these; characters that
    are invisible, in private use or control how text is displayed are left out. White space becomes blanks.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
    text = text.lower()
    return (
        text
        if text.isascii() and text.isprintable()
        else _UNUSUAL.sub(lambda found: "".join(map(_plain, found[0])), text)
    )


@lru_cache(maxsize=4096)
def _plain(character: str) -> str:
    if character.isspace():
        return " "
    if character.isascii():
        return character if character.isprintable() else ""
    if character in _INVISIBLE or unicodedata.category(character) in {"Cc", "Cf", "Co", "Cn", "Cs", "Mn", "Me"}:
        return ""
    if ord(character) in _TABLE:
        return _TABLE[ord(character)]
    found = _LATIN.search(unicodedata.name(character, ""))
    is_latin = found is not None and ("LATIN" in found.string or "SYMBOL LETTER" in found.string)
    return found[1].lower() if found is not None and is_latin else character
