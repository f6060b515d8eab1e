import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from riglm.cli.main import app
from riglm.domain.errors import AnalyticsUnavailable, ConfigurationError

runner = CliRunner()


@pytest.fixture(autouse=True)
def _directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RIGLM_DATA_DIR", str(tmp_path / "new" / "data"))


def test_status_makes_nothing_and_upgrade_makes_the_store(tmp_path: Path) -> None:
    store = tmp_path / "new" / "data" / "riglm.db"
    before = json.loads(runner.invoke(app, ["db", "status", "--json"]).output)
    assert before["current"] is None
    assert before["pending"]
    assert not store.exists()
    assert runner.invoke(app, ["db", "upgrade"]).exit_code == 0
    after = json.loads(runner.invoke(app, ["db", "status", "--json"]).output)
    assert after["current"] == after["head"] == before["head"]
    assert after["pending"] == []
    assert str(store) in runner.invoke(app, ["db", "status"]).output


@pytest.mark.parametrize("words", [["db", "status"], ["db", "upgrade"], ["stats"], ["sessions"], ["tools"]])
def test_a_data_directory_that_is_none_is_an_error_and_not_an_empty_store(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "new").write_text("in the way", "utf-8")
    result = runner.invoke(app, words)
    assert isinstance(result.exception, AnalyticsUnavailable)
    assert f"the data directory {tmp_path / 'new' / 'data'} cannot be used" in str(result.exception)
    assert "fix:" in str(result.exception)


def test_a_store_in_memory_has_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIGLM_STORAGE__KIND", "memory")
    result = runner.invoke(app, ["db", "upgrade"])
    assert isinstance(result.exception, ConfigurationError)
