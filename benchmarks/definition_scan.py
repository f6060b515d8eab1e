"""What the scan of tool definitions finds: `python -m benchmarks.definition_scan --corpora DIR`.

`DIR` holds checkouts of public corpora, each of which may be missing: `mcpproxy-go`, `mcp-scanner`, `mcpsecbench` and
`safe-mcp`.
False alarms are measured on the tools of real servers. With yara-python installed, the offline rules of mcp-scanner run
on the same definitions.
"""

import argparse
import ast
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from riglm.domain.definition_scan import scan_definition

_DATA: Final = Path(os.environ.get("RIGLM_EVAL_DATA", "../shared/data"))
_SHOWN: Final = ("name", "description", "inputSchema", "annotations", "outputSchema")


class Case(NamedTuple):
    """One definition, and whether its authors call it malicious."""

    definition: dict[str, Any]
    is_malicious: bool


def _catalog(_: Path) -> Iterator[Case]:
    for line in (_DATA / "mcp_catalog" / "tools.jsonl").read_text("utf-8").splitlines():
        tool = json.loads(line)
        names: dict[str, Any] = {name: {} for name in tool.get("parameters", "").split(", ") if name}
        yield Case({"name": tool["bare_name"], "description": tool.get("description", ""), "inputSchema": names}, False)


def _mcpproxy(corpora: Path) -> Iterator[Case]:
    for name in ("security_corpus_v1.json", "detect_corpus_v1.json"):
        file = corpora / "mcpproxy-go" / "specs" / "065-evaluation-foundation" / "datasets" / name
        for entry in json.loads(file.read_text("utf-8"))["entries"]:
            tool = entry.get("tool") or {"description": entry["description"]}
            yield Case({key: tool[key] for key in _SHOWN if key in tool}, entry["label"] == "malicious")


def _mcp_scanner(corpora: Path) -> Iterator[Case]:
    for kind in ("benign", "malicious"):
        for file in sorted((corpora / "mcp-scanner" / "evals" / "remote" / kind).glob("*.py")):
            yield from (Case(definition, kind == "malicious") for definition in _defined_in(file))


def _mcpsecbench(corpora: Path) -> Iterator[Case]:
    for name in ("addserver", "download", "maliciousadd"):
        for definition in _defined_in(corpora / "mcpsecbench" / "code" / f"{name}.py"):
            yield Case(definition, name == "maliciousadd")


def _defined_in(file: Path) -> Iterator[dict[str, Any]]:
    """The tools that a server in Python defines by decorated functions."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if node.decorator_list and text:
                schema = {argument.arg: "" for argument in node.args.args}
                yield {"name": node.name, "description": text, "inputSchema": schema}


def _safe_mcp(corpora: Path) -> Iterator[Case]:
    techniques = corpora / "safe-mcp" / "techniques"
    for kind, entries in json.loads((techniques / "SAFE-T1008" / "test-logs.json").read_text("utf-8")).items():
        for entry in entries:
            definition = {"name": entry["tool_name"], "description": entry["tool_description"]}
            yield Case(definition, kind != "legitimate_tools")


_CORPORA: Final[dict[str, Callable[[Path], Iterator[Case]]]] = {
    "real servers (mcp_catalog)": _catalog,
    "mcpproxy-go": _mcpproxy,
    "mcp-scanner, remote": _mcp_scanner,
    "MCPSecBench": _mcpsecbench,
    "SAFE-MCP, T1008": _safe_mcp,
}


def _with_riglm(definition: dict[str, Any]) -> bool:
    return bool(scan_definition(definition))


def _with_rules(folder: Path) -> Callable[[dict[str, Any]], bool] | None:
    """Apply the rules of mcp-scanner, None where they or yara-python are missing."""
    files = {file.stem: str(file) for file in folder.glob("*.yara")}
    if not files or importlib.util.find_spec("yara") is None:
        return None
    rules = importlib.import_module("yara").compile(filepaths=files)
    return lambda definition: bool(rules.match(data=json.dumps(definition)))


def _share(flagged: int, number: int) -> str:
    return f"{flagged} of {number}" if number else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", type=Path, default=Path(".cache/corpora"), help="the directory of the checkouts")
    corpora = parser.parse_args().corpora
    scanners: dict[str, Callable[[dict[str, Any]], bool]] = {"riglm": _with_riglm}
    if rules := _with_rules(corpora / "mcp-scanner" / "mcpscanner" / "data" / "yara_rules"):
        scanners["mcp-scanner, YARA rules"] = rules
    print("| corpus | scanner | malicious found | false alarms |\n|---|---|---|---|")
    for name, cases_of in _CORPORA.items():
        try:
            cases = list(cases_of(corpora))
        except FileNotFoundError:
            print(f"| {name} | not there | | |")
            continue
        for scanner, is_flagged in scanners.items():
            malicious = [is_flagged(case.definition) for case in cases if case.is_malicious]
            benign = [is_flagged(case.definition) for case in cases if not case.is_malicious]
            found, alarms = _share(sum(malicious), len(malicious)), _share(sum(benign), len(benign))
            print(f"| {name} | {scanner} | {found} | {alarms} |")


if __name__ == "__main__":
    main()
