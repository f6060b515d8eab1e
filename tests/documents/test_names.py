"""Every command, option, key, variable, file, route, metric and link that a document names is there."""

import re
from pathlib import Path

import pytest

from tests.documents.names import CHECKS, Check, is_setting
from tests.documents.page import PAGES, ROOT, Page

SEEDED = [
    ("wrong_commands", "```sh\nriglm evaluat history\n```"),
    ("wrong_commands", "```sh\nriglm sessions --jsno\n```"),
    ("wrong_commands", "```console\n$ FOO=1 riglm db purge --older-thn 30d | head\nremoved\n```"),
    ("wrong_commands", "```sh\nriglm embedder pull   # which one?\n```"),
    ("wrong_commands", "```sh\nriglm stats surplus\n```"),
    ("wrong_commands", "```sh\nriglm db export --out x --table invocation\n```"),
    ("wrong_commands", "Run `riglm db status|states --json`."),
    ("wrong_commands", "With `--no-filters` everything is shown."),
    ("wrong_commands", '```json\n{"mcpServers": {"a": {"command": "riglm", "args": ["runn", "--", "x"]}}}\n```'),
    ("wrong_programs", "`make everything` does it."),
    ("wrong_programs", "```\npython -m benchmarks.overhed\n```"),
    ("wrong_programs", "```\npython -m benchmarks.clickhouse --olny 1000\n```"),
    ("wrong_settings", "```yaml\nfiltering: {max_tool: 3}\n```"),
    ("wrong_settings", "```yaml\nfiltering: {mode: shade}\n```"),
    ("wrong_settings", "```json\n{mcpServers: 1}\n```"),
    ("wrong_settings", "Set `filtering.passthrough_below.tool`."),
    ("wrong_settings", "With `filtering.mode: shade` nothing is hidden."),
    ("wrong_settings", "With `surface: dinamic` it moves."),
    ("wrong_settings", "With `serface: dynamic` it moves."),
    ("wrong_settings", '```sh\ncurl -X PUT http://127.0.0.1:8701/config -d \'{"filtering": {"mod": null}}\'\n```'),
    ("wrong_variables", "Set RIGLM_FILTERING__MOD."),
    ("wrong_variables", "Set `SURR_INNER_VOICE_MIXX`."),
    ("wrong_places", "See `src/riglm/cli/mein.py`."),
    ("wrong_places", "See `app/tracking/recordr`."),
    ("wrong_places", "See `riglm.domain.{policy,renking}`."),
    ("wrong_places", "```python\nfrom riglm import ToolSelectr\n```"),
    ("wrong_routes", "Ask `GET /configs`."),
    ("wrong_routes", "```sh\ncurl http://127.0.0.1:8701/session\n```"),
    ("wrong_metrics", "```yml\nexpr: rate(riglm_calls_totals[5m])\n```"),
    ("wrong_links", "[there](docs/quickstrat.md)"),
    ("wrong_links", "[there](docs/quickstart.md#7-fly)"),
]


def _id(value: Path | Check) -> str:
    return str(value.relative_to(ROOT)) if isinstance(value, Path) else value.__name__


@pytest.mark.parametrize("path", PAGES, ids=_id)
def test_all_that_a_page_names_is_there(path: Path) -> None:
    page = Page.read(path)
    wrong = [f"{path.relative_to(ROOT)}:{line}: {what}" for check in CHECKS for line, what in check(page)]
    assert not wrong, "\n".join(wrong)


def test_every_setting_that_a_benchmark_sets_is_there() -> None:
    text = "\n".join(file.read_text("utf-8") for file in (ROOT / "benchmarks").rglob("*.py"))
    names = set(re.findall(r"\bRIGLM_[A-Z]+__[A-Z_]+\b", text))
    assert names
    assert not [name for name in names if not is_setting(name)]


@pytest.mark.parametrize(("check", "text"), SEEDED)
def test_a_wrong_name_is_found(check: str, text: str) -> None:
    page = Page(ROOT / "README.md", text)
    assert {each.__name__ for each in CHECKS for _ in each(page)} == {check}


@pytest.mark.parametrize("check", CHECKS, ids=_id)
def test_each_check_has_a_seeded_wrong_name(check: Check) -> None:
    assert check.__name__ in {name for name, _ in SEEDED}


def test_every_benchmark_is_named_among_the_benchmarks() -> None:
    told = (ROOT / "docs" / "discussions" / "benchmarks.md").read_text("utf-8")
    folder = ROOT / "benchmarks"
    packages = {file.parent.name for file in folder.glob("*/__main__.py")}
    modules = {file.stem for file in folder.glob("*.py") if "argparse" in file.read_text("utf-8")}
    assert {name for name in packages | modules if f"benchmarks.{name}`" not in told} == set()
