"""A page of the documents as CommonMark reads it: its code, its links, its headings."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from markdown.extensions.toc import slugify, unique
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
_MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Code:
    """A piece of code: what language it says it is (`inline` within a sentence), and the line where it begins."""

    language: str
    title: str
    text: str
    line: int


@dataclass(frozen=True)
class Page:
    """One Markdown file; links by the line of their paragraph, headings by the anchors that they make."""

    path: Path
    text: str

    @classmethod
    @cache
    def read(cls, path: Path) -> "Page":
        return cls(path, path.read_text("utf-8"))

    @cached_property
    def tokens(self) -> list[Token]:
        return _MARKDOWN.parse(self.text)

    def code(self) -> Iterator[Code]:
        """All code in the order of the page, fenced and inline; what is indented is a fence without a language."""
        for token in self.tokens:
            line = token.map[0] + 1 if token.map else 0
            if token.type in {"fence", "code_block"}:
                language, _, rest = token.info.partition(" ")
                yield Code(language, rest.removeprefix("title=").strip('"'), token.content, line)
            for child in token.children or ():
                if child.type == "code_inline":
                    yield Code("inline", "", child.content, line)

    def links(self) -> Iterator[tuple[int, str]]:
        """Where links and pictures lead to, with the line."""
        for token in self.tokens:
            for child in token.children or ():
                target = child.attrGet("href") or child.attrGet("src")
                if target:
                    yield (token.map[0] + 1 if token.map else 0), str(target)

    def anchors(self) -> set[str]:
        """The names of the headings, as the site gives them."""
        taken: set[str] = set()
        for heading, inside in zip(self.tokens, self.tokens[1:], strict=False):
            if heading.type == "heading_open":
                plain = "".join(child.content for child in inside.children or ())
                unique(slugify(plain, "-"), taken)
        return taken
