"""What a page names, and which of it there is not. Each check yields a line and what is wrong there."""

import importlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from riglm.adapters.configuration.loading import Options, load
from riglm.adapters.configuration.variables import read_variables
from riglm.adapters.control.app import create_api
from riglm.domain.errors import RiglmError
from riglm.domain.schemas.problems import TOP, ConfigProblem, SchemaNode
from tests.documents import commands
from tests.documents.page import ROOT, Page

Check = Callable[[Page], Iterator[tuple[int, str]]]
_ROOMS = {"app": "application", "up": "adapters/mcp/upstream", "down": "adapters/mcp/downstream"}
_OWN_SUFFIXES = (".yaml", ".db", ".key", ".json", ".yml", ".md")
_COMPANIONS = {"RIGLM_STATE__URL": "redis://127.0.0.1", "RIGLM_FILTERING__ALLOWLIST": "read_file"}
"""What some settings need beside them, where a sentence names one alone."""


def wrong_commands(page: Page) -> Iterator[tuple[int, str]]:
    """Command lines of riglm that its own parser refuses, in blocks, sentences and clients' files; unknown options."""
    for code in page.code():
        if code.language != "inline":
            for offset, line in commands.lines_of(code.language, code.text):
                yield from _refused(code.line + 1 + offset, line, whole=True)
            if code.language == "json":
                yield from ((code.line, wrong) for wrong in _servers_of_riglm(code.text))
        elif code.text.startswith("riglm "):
            yield from _refused(code.line, code.text, whole=False)
        elif re.match(r"--[a-z]", code.text):
            option = re.split(r"[ =,]", code.text)[0]
            if option not in commands.all_options() and f'"{option}"' not in _benchmarks():
                yield code.line, f"no option {option}"


def _refused(line: int, text: str, *, whole: bool) -> Iterator[tuple[int, str]]:
    for words in commands.simple_commands(text):
        wrong = commands.wrong_with(words[1:], whole=whole) if words[:1] == ["riglm"] else None
        if wrong:
            yield line, f"{text}: {wrong}"


def _servers_of_riglm(text: str) -> Iterator[str]:
    document = _json(text)
    servers = document.get("mcpServers", {}) if isinstance(document, dict) else {}
    for server in servers.values():
        if server.get("command") == "riglm":
            wrong = commands.wrong_with(server["args"], whole=True)
            if wrong:
                yield f"{server['args']}: {wrong}"


@cache
def _benchmarks() -> str:
    return "\n".join(file.read_text("utf-8") for file in sorted((ROOT / "benchmarks").rglob("*.py")))


def wrong_programs(page: Page) -> Iterator[tuple[int, str]]:
    """Targets of make, modules that Python is told to run, and their options."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for code in page.code():
        for target in re.findall(r"(?:^|[\n;&$] ?)make ([a-z-]+)", code.text):
            if target not in targets:
                yield code.line, f"no target {target} of make"
        for module, rest in re.findall(r"python -m ((?:benchmarks|riglm)[\w.]*)([^\n]*)", code.text):
            folder = (ROOT if module.startswith("benchmarks") else ROOT / "src") / module.replace(".", "/")
            files = [folder.with_suffix(".py")] if folder.with_suffix(".py").exists() else [*folder.glob("*.py")]
            if not files:
                yield code.line, f"no module {module}"
            source = "\n".join(file.read_text("utf-8") for file in files)
            for option in re.findall(r"(?<=[ \[])--[a-z][a-z-]*", rest):
                if f'"{option}"' not in source:
                    yield code.line, f"no option {option} of {module}"


def wrong_settings(page: Page) -> Iterator[tuple[int, str]]:
    """Configurations that riglm would not start with, and keys that it has not.

    A block of `yaml` is riglm's; what is another program's says `yml`. In a sentence `filtering.mode` is a key,
    `filtering.mode: shadow` and `max_tools: 15` are settings, to be valid in one of the sections that have the key.
    """
    for code in page.code():
        if code.language == "yaml":
            yield from ((code.line, wrong) for wrong in _unusable(code.text))
        elif code.language == "json" and _json(code.text) is None:
            yield code.line, "this is no JSON"
        elif code.language == "inline" and re.fullmatch(r"[A-Za-z_]+(\.[\w*-]+)+", code.text):
            if code.text.split(".")[0] in TOP.keys and _at(code.text.split(".")) is None:
                yield code.line, f"no key {code.text}"
        elif code.language == "inline" and re.match(r"[a-z][A-Za-z_.]*: ", code.text):
            yield from ((code.line, wrong) for wrong in _wrong_setting(code.text))
        for data in re.findall(r"-d '(\{.*?\})'", code.text) if "/config" in code.text else ():
            keys = _keys_of(yaml.safe_load(data))
            yield from ((code.line, f"no key {key}") for key in keys if _at(key.split(".")) is None)


def _json(text: str) -> Any:
    try:
        return json.loads(text.replace("…", ""))
    except ValueError:
        return None


def _unusable(text: str, environment: Mapping[str, str] = {}) -> Iterator[str]:
    variables = {name: name + "8f3a6c0d9e1b47725a" * 2 for name in re.findall(r"\$\{(\w+)\}", text)}
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "riglm.yaml"
        file.write_text(text, "utf-8")
        try:
            load(Options(config=file), environment={**variables, **environment})
        except RiglmError as error:
            yield str(error)


def _keys_of(document: Mapping[str, Any], before: str = "") -> Iterator[str]:
    for key, value in document.items():
        yield f"{before}{key}"
        if isinstance(value, dict):
            yield from _keys_of(value, f"{before}{key}.")


def _wrong_setting(text: str) -> Iterator[str]:
    key, _, value = text.partition(": ")
    first = key.split(".")[0]
    places = (
        [key] if first in TOP.keys else [f"{place}.{key}" for place in _sections() if _at([*place.split("."), first])]
    )
    if not places and f'"{key}"' not in _sources():
        yield f"no key {key}"
    documents = [_nested(place.split("."), value) for place in places]
    tried = [[*_unusable(document, beside)] for document in documents for beside in ({}, _COMPANIONS)]
    if places and all(tried):
        yield f"{text}: {tried[0][0]}"


def _nested(path: list[str], value: str) -> str:
    return "".join(f"{'  ' * depth}{key}:\n" for depth, key in enumerate(path))[:-1] + f" {value}\n"


@cache
def _sections() -> tuple[str, ...]:
    outer = [name for name in TOP.keys if cast("SchemaNode", TOP.below(name)).form == "section" and name != "upstream"]
    inner = [f"{name}.{key}" for name in outer for key in cast("SchemaNode", TOP.below(name)).keys]
    return (*outer, *(place for place in inner if cast("SchemaNode", _at(place.split("."))).form == "section"))


def _at(path: list[str]) -> SchemaNode | None:
    here: SchemaNode | None = TOP
    for key in path:
        here = here.below(key) if here is not None else None
    return here


def wrong_variables(page: Page) -> Iterator[tuple[int, str]]:
    """Variables of the environment that neither riglm nor its tests read; `${RIGLM_…}` is the reader's own."""
    for number, line in enumerate(page.text.splitlines(), 1):
        for name in re.findall(r"(?<![${A-Z_])(?:RIGLM|SURR)_[A-Z0-9_]*[A-Z0-9](?![\w…*])", line):
            if name not in _read_names() and not is_setting(name):
                yield number, f"no variable {name}"


def is_setting(variable: str) -> bool:
    """Return True if an environment variable is read as a setting."""
    if not variable.startswith("RIGLM"):
        return False
    read = [*read_variables({variable: "[{}]"}), *read_variables({variable: "{}"})]
    return any(not isinstance(each, ConfigProblem) for each in read)


@cache
def _read_names() -> frozenset[str]:
    return frozenset(re.findall(r'"((?:RIGLM|SURR)_[A-Z0-9_]+)"', _sources()))


@cache
def _sources() -> str:
    files = [file for room in ("src", "tests", "benchmarks") for file in sorted((ROOT / room).rglob("*.py"))]
    return "\n".join(file.read_text("utf-8") for file in files if file.parent != Path(__file__).parent)


def wrong_places(page: Page) -> Iterator[tuple[int, str]]:
    """Files of the checkout, modules and names of riglm in code that are not there."""
    for code in page.code():
        for module, *names in re.findall(r"from (riglm[\w.]*) import (?:\(([^)]*)\)|([\w, ]*))", code.text):
            for name in re.findall(r"(?:^|,)\s*(\w+)", "".join(names)):
                if not _importable(f"{module}.{name}"):
                    yield code.line, f"no {name} in {module}"
        for text in _alternatives(code.text) if code.language == "inline" else ():
            if re.fullmatch(r"riglm(\.\w+)+", text) and not text.endswith(_OWN_SUFFIXES) and not _importable(text):
                yield code.line, f"no {text}"
            if re.fullmatch(r"[\w./-]+/[\w.-]*", text) and not _is_there(text):
                yield code.line, f"no file {text}"


def _alternatives(text: str) -> Iterator[str]:
    """`a.{b,c}` as a shell would write it out."""
    found = re.search(r"\{([\w,.]+)\}", text)
    if not found:
        yield text
        return
    for one in found.group(1).split(","):
        yield from _alternatives(text[: found.start()] + one + text[found.end() :])


def _importable(name: str) -> bool:
    if f'"{name}"' in _sources():  # a group of entry points, or an attribute of spans
        return True
    module, rest = name, ""
    while module:
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            module, _, last = module.rpartition(".")
            rest = f"{last}.{rest}".strip(".")
            continue
        return all((found := getattr(found, part, None)) is not None for part in rest.split(".") if part)
    return False


def _is_there(text: str) -> bool:
    """Whether a path of ours is there; what begins with no folder of ours is somebody else's."""
    first, _, rest = text.strip("/").partition("/")
    if text.startswith(("/", ".")) or not rest:
        return True
    if first in _ROOMS:
        text = f"src/riglm/{_ROOMS[first]}/{rest}"
    elif (ROOT / "src" / "riglm" / first).exists():
        text = f"src/riglm/{text}"
    elif not (ROOT / first).is_dir():
        return True
    return any((ROOT / f"{text.rstrip('/')}{suffix}").exists() for suffix in ("", ".py"))


def wrong_routes(page: Page) -> Iterator[tuple[int, str]]:
    """Paths of the control API, in sentences (`GET /config`) and in what curl is told to ask."""
    for code in page.code():
        asked = re.findall(r"http://127\.0\.0\.1:8701(/[\w/{}$-]*)", code.text)
        if code.language == "inline":
            asked += re.findall(r"^(?:GET|PUT|POST|DELETE) (/[\w/{}-]*)", code.text)
        for path in asked:
            if path != "/" and not any(re.fullmatch(route, path) for route in _routes()):
                yield code.line, f"no route {path}"


@cache
def _routes() -> tuple[str, ...]:
    document = create_api(version="any", needs_token=True).openapi()
    return ("/openapi.json", *(re.sub(r"\{[^/]+\}", "[^/]+", path) for path in document["paths"]))


def wrong_metrics(page: Page) -> Iterator[tuple[int, str]]:
    """Names of metrics that the reference, which comes from the registry, does not have."""
    reference = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    for code in page.code():
        for name in re.findall(r"(?<![\w/.$])riglm_[a-z_]+[a-z](?![\w./])", code.text):
            if f"`{re.sub(r'_(bucket|sum|count)$', '', name)}`" not in reference:
                yield code.line, f"no metric {name}"


def wrong_links(page: Page) -> Iterator[tuple[int, str]]:
    """Links to pages, files and headings that are not there."""
    for line, target in page.links():
        if re.match(r"\w+:", target):
            continue
        place, _, anchor = target.partition("#")
        file = (page.path.parent / place).resolve() if place else page.path
        if not file.exists():
            yield line, f"no file {target}"
        elif anchor and anchor not in Page.read(file).anchors():
            yield line, f"no heading {target}"


CHECKS: tuple[Check, ...] = (
    wrong_commands,
    wrong_programs,
    wrong_settings,
    wrong_variables,
    wrong_places,
    wrong_routes,
    wrong_metrics,
    wrong_links,
)
