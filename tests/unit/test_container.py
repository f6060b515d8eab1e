"""Every provider gives what it is annotated with, in every configuration that can be chosen."""

import ast
import importlib
import os
import subprocess
import sys
import types
import typing
from pathlib import Path

import pytest
from dependency_injector import providers

import riglm.container
from riglm.container import Container
from riglm.domain.errors import ConfigurationError
from riglm.domain.schemas.settings import Settings

ALL = {
    "access": {"team": {"servers": ["*"]}},
    "audit": {"file": "-"},
    "clickhouse": {"url": "http://127.0.0.1:9/riglm"},
    "control": {"enabled": True},
    "downstream": {"tokens": {"ana": "0123456789abcdef0123456789abcdef"}},
    "knowledge": {"enabled": True},
    "state": {"kind": "redis", "url": "redis://127.0.0.1:9/0"},
    "tracing": {"enabled": True},
}
STORES = {
    "memory": {"kind": "memory"},
    "sqlite": {"kind": "sqlite"},
    "postgresql": {"kind": "postgresql", "url": "postgresql://u:p@127.0.0.1:9/riglm"},
}
PREDICTORS = ("frequency", "cooccurrence", "sequence", "embedding", "server", "hybrid")


def settings_of(**sections) -> Settings:
    return Settings.model_validate({"upstream": {"url": "http://127.0.0.1:9/mcp"}, **sections})


def annotated_types() -> dict[str, tuple[type, ...]]:
    """What each provider is annotated to give, with the types that are imported for type checkers alone."""
    source = Path(riglm.container.__file__).read_text()
    names: dict[str, object] = {"__name__": "container_with_types"}
    exec(source.replace("if TYPE_CHECKING:", "if True:"), names)
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.annotation, ast.Subscript):
            given = node.annotation.slice
            written = given.value if isinstance(given, ast.Constant) else ast.unparse(given)
            kind = eval(written, names)
            members = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
            found[node.target.id] = tuple(typing.get_origin(each) or each for each in members)
    return found


def checked(expected: tuple[type, ...]) -> tuple[type, ...]:
    """The same without types that cannot be checked at run time, such as those of functions."""
    return (
        tuple(each for each in expected if isinstance(each, type))
        if all(isinstance(each, type) for each in expected)
        else (object,)
    )


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("sections", [{}, ALL], ids=["default", "all"])
@pytest.mark.parametrize("store", STORES)
def test_every_provider_gives_what_it_is_annotated_with(store, sections):
    settings = settings_of(storage=STORES[store], **sections)
    container = Container(settings=settings)
    expected = annotated_types()
    unreachable = {"choices"} if store == "postgresql" else set()
    unused = set() if sections else {"state", "shared_learning", "clickhouse", "clickhouse_spool"}
    unused |= set() if sections else {"clickhouse_spool_path"}
    arguments = {"client_name": ("name",), "prediction_state": (container.prediction_settings(), lambda job: job())}
    for name, provider in container.providers.items():
        if name in unreachable | unused or name.startswith("_") or isinstance(provider, providers.ProvidedInstance):
            continue
        made = provider(*arguments.get(name, ()))
        assert isinstance(made, checked(expected.get(name, (object,)))), name
    container.shutdown_resources()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("kind", PREDICTORS)
def test_every_predictor_is_made(kind):
    assert callable(Container(settings=settings_of(predictor={"kind": kind})).predictor().predict)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("provider", ["static", "fastembed"])
def test_every_embedder_is_made(provider):
    embedders = Container(settings=settings_of(embedder={"provider": provider})).embedders()
    assert embedders.always.status().provider == provider


@pytest.mark.parametrize(
    ("part", "module", "sections", "extra"),
    [
        ("clickhouse", "adapters.analytics.clickhouse", ALL, "clickhouse"),
        ("state", "adapters.state", ALL, "redis"),
        ("tracer", "adapters.telemetry.tracing", ALL, "otel"),
    ],
)
def test_what_is_chosen_but_not_installed_is_an_error_with_its_extra(monkeypatch, part, module, sections, extra):
    monkeypatch.setitem(sys.modules, f"riglm.{module}", None)
    with pytest.raises(ConfigurationError, match=rf"pip install 'riglm\[{extra}\]'"):
        getattr(Container(settings=settings_of(**sections)), part)()


def test_postgresql_without_its_driver_is_an_error_with_its_extra(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'riglm\[postgresql\]'"):
        Container(settings=settings_of(storage=STORES["postgresql"])).store_url()


def test_the_container_imports_no_web_framework_and_hides_none_for_long():
    look = (
        "import sys, riglm.cli.entry, riglm.container; print(sorted({name.split('.')[0] for name in sys.modules}"
        " & {'fastapi', 'starlette', 'werkzeug', 'numpy', 'sqlalchemy'})); import fastapi, yaml;"
        " from dependency_injector.wiring import inject"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip() == "[]"
