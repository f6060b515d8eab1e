"""The variables of the inner voice: put on their bounds or left out, with a warning; none ever stops a start."""

from pathlib import Path
from typing import Any

import pytest

from riglm.adapters.configuration.loading import Configuration, Options, load

GATE = {"SURR_ENABLE_INNER_VOICE": "1"}
PREFIX = "SURR_INNER_VOICE_"


@pytest.fixture
def loaded(tmp_path: Path) -> Any:
    def load_with(environment: dict[str, str], yaml: str = "") -> Configuration:
        (tmp_path / "riglm.yaml").write_text(yaml)
        return load(Options(), environment={"RIGLM_DATA_DIR": str(tmp_path), **environment}, directory=tmp_path)

    return load_with


@pytest.mark.parametrize(("text", "is_on"), [("1", True), ("0", False), (" 1 ", True)])
def test_the_gate_goes_before_the_file(loaded: Any, text: str, is_on: bool):
    for yaml in ("knowledge: {enabled: true}", "knowledge: {enabled: false}"):
        found = loaded({"SURR_ENABLE_INNER_VOICE": text}, yaml)
        assert (found.settings.knowledge.enabled, found.warnings) == (is_on, ())


@pytest.mark.parametrize("text", ["true", "yes", "2", "on", "", " "])
def test_nothing_but_one_opens_the_gate_and_a_warning_says_so(loaded: Any, text: str):
    found = loaded({"SURR_ENABLE_INNER_VOICE": text}, "knowledge: {enabled: true}")
    assert found.settings.knowledge.enabled is False
    assert found.warnings[0].startswith("SURR_ENABLE_INNER_VOICE: ")


def test_what_is_within_bounds_counts_without_a_word(loaded: Any):
    found = loaded(
        {
            **GATE,
            f"{PREFIX}MIX": "0.25",
            f"{PREFIX}TOPK_DEFAULT": "20",
            f"{PREFIX}MIN_FLOOR": "0.12",
            f"{PREFIX}MAX_CANDIDATES_PER_SOURCE": "60",
            "SURR_EMBED_PROVIDER": "Static",
            "SURR_EMBED_MODEL": "some/model",
            "SURR_EMBED_DIM": "256",
        },
        "knowledge: {mix: 0.9, top_k: 3}",
    )
    knowledge, embedder = found.settings.knowledge, found.settings.embedder
    assert (knowledge.mix, knowledge.top_k, knowledge.min_floor) == (0.25, 20, 0.12)
    assert (knowledge.max_candidates_per_source, knowledge.dimensions) == (60, 256)
    assert (embedder.provider, embedder.model) == ("static", "some/model")
    assert found.warnings == ()
    assert found.origins["knowledge", "mix"] == f"{PREFIX}MIX"


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("MIX", "1.5", "mix", 1.0),
        ("MIX", "inf", "mix", 1.0),
        ("MIX", "nan", "mix", 0.6),
        ("TOPK_DEFAULT", "0", "top_k", 1),
        ("TOPK_DEFAULT", "51", "top_k", 50),
        ("TOPK_DEFAULT", "7.5", "top_k", 10),
        ("MIN_FLOOR", "0", "min_floor", 0.15),
        ("DIM", "many", "dimensions", None),
        ("MAX_CANDIDATES_PER_SOURCE", "9", "max_candidates_per_source", 150),
        ("MAX_CANDIDATES_PER_SOURCE", "1" * 60, "max_candidates_per_source", 10_000),
    ],
)
def test_what_is_out_of_bounds_is_changed_with_a_warning(
    loaded: Any, name: str, text: str, key: str, value: float | None
):
    variable = "SURR_EMBED_DIM" if name == "DIM" else f"{PREFIX}{name}"
    found = loaded({**GATE, variable: text})
    assert getattr(found.settings.knowledge, key) == value
    (warning,) = found.warnings
    assert warning.startswith(f"{variable}: ")


def test_a_provider_that_riglm_has_not_leaves_the_embedder_as_it_is(loaded: Any):
    found = loaded(
        {
            **GATE,
            "SURR_EMBED_PROVIDER": "openai",
            "SURR_EMBED_MODEL": "text-embedding-3-small",
            "SURR_EMBED_DIM": "1536",
        }
    )
    assert found.settings.embedder == loaded({}).settings.embedder
    assert found.settings.knowledge.dimensions is None
    (warning,) = found.warnings
    assert "openai" in warning


def test_who_asks_the_store_by_itself_goes_by_the_variables_also_behind_a_closed_gate(tmp_path: Path):
    given = {"RIGLM_DATA_DIR": str(tmp_path), f"{PREFIX}MIX": "7", "SURR_EMBED_PROVIDER": "static"}
    for gate in ({}, {"SURR_ENABLE_INNER_VOICE": "0"}):
        found = load(Options(about_knowledge=True), environment={**given, **gate}, directory=tmp_path)
        assert (found.settings.knowledge.mix, found.settings.embedder.provider) == (1.0, "static")
        assert found.settings.knowledge.enabled is False
        assert [warning.partition(":")[0] for warning in found.warnings] == [f"{PREFIX}MIX"]


@pytest.mark.parametrize(
    ("yaml", "floors"),
    [
        ("{floor: 0.1}", "0.15 is above knowledge.floor (0.1)"),
        ("{min_floor: 0.5}", "0.5 is above knowledge.floor (0.25)"),
    ],
)
def test_a_floor_below_the_least_floor_warns_in_the_file_too(loaded: Any, yaml: str, floors: str):
    (warning,) = loaded({}, f"knowledge: {yaml}").warnings
    assert warning == f"knowledge.min_floor: {floors} and has no effect — fix: raise knowledge.floor"
    assert loaded({}, "knowledge: {floor: 0.15, min_floor: 0.15}").warnings == ()
