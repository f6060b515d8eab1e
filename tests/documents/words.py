"""Check that docs, docstrings, messages and comments use none of the words in `BANNED`; `make check` runs this."""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

BANNED: Final = {
    r"tells?|told|telling": "returns, reports, sends, shows, logs",
    r"of its own|its own|of their own|riglm's own": "separate, dedicated, its; for tools: meta-tools",
    r"whoever|whatever|whichever|wherever": "the caller, the client, any, regardless of",
    r"says? (?:why|what|how|so|that|of|whether)": "explains, reports, contains, specifies",
    r"stands?|stood": "is, is located, appears",
    r"nobody": "no client, no process, unused",
    r"so (?:many|much|long)(?! as)": "maximum number of, up to N, for N seconds",
    r"somebody|anybody|everybody": "a user, another process, all clients",
    r"away|gone": "unavailable, deleted, closed, disconnected",
    r"besides?": "next to, in addition to, except",
    r"anew": "again",
    r"another one": "different",
    r"at work|at hand": "running, loaded",
    r"heard|hears?": "receives",
    r"spoken|speaks?|spoke": "supports",
    r"is to be|are to be": "must, will",
    r"lessons?|gists?": "training example",
    r"as far as": "if, up to",
    r"let go": "release, close",
    r"rooms?": "package, space",
    r"for good|for ever": "permanently",
    r"looks? after": "maintains",
    r"of late|lately": "recently",
    r"goes? by": "uses",
}
"""Regular expressions of words, each with what to write instead."""

ALLOWED: Final = frozenset({("src/riglm/adapters/analytics/tables.py", "lesson")})  # a database table
"""File and word of each use that is right where it is; at most 30."""

_PATTERN: Final = re.compile("|".join(rf"\b(?P<w{i}>{words})\b" for i, words in enumerate(BANNED)), re.IGNORECASE)


def main() -> int:
    """Print each banned word with its location; returns the exit code."""
    found = [
        f"{path}:{line}: {word!r} — fix: write {instead}"
        for path, line, word, instead in _uses()
        if (path, word.lower()) not in ALLOWED
    ]
    sys.stderr.writelines(f"{line}\n" for line in found)
    return 1 if found or len(ALLOWED) > 30 else 0


def _uses() -> Iterator[tuple[str, int, str, str]]:
    instead = list(BANNED.values())
    for path, first, text in _texts():
        for match in _PATTERN.finditer(text):
            name = match.lastgroup or "w0"
            yield path, first + text.count("\n", 0, match.start()), match[0], instead[int(name[1:])]


def _texts() -> Iterator[tuple[str, int, str]]:
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ]
    for page in sorted(pages):
        yield str(page.relative_to(ROOT)), 1, page.read_text("utf-8")
    for module in sorted((ROOT / "src" / "riglm").rglob("*.py")):
        for token in tokenize.generate_tokens(io.StringIO(module.read_text("utf-8")).readline):
            if token.type in (tokenize.STRING, tokenize.COMMENT):
                yield str(module.relative_to(ROOT)), token.start[0], token.string


if __name__ == "__main__":
    sys.exit(main())
