import pytest

from riglm.domain.client_setup import starts_riglm


@pytest.mark.parametrize(
    "words",
    [
        "riglm run --config riglm.yaml",
        "/home/ann/.local/bin/riglm run",
        r"C:\Users\Ann\Scripts\riglm.exe run",
        "python -m riglm run",
        "/opt/venv/bin/python3.11 -u -X utf8 -m riglm run",
        "uvx riglm run",
        "uvx riglm@1.2 run",
        "uvx --python 3.12 --from riglm[postgresql] riglm run",
        "pipx run riglm run",
        "uv tool run riglm run",
        "uv run --directory /srv/tools riglm run",
        "uv run python -m riglm run",
        "env RIGLM_LOGGING__LEVEL=debug riglm run",
        "cmd /c riglm run",
    ],
)
def test_what_starts_riglm_is_riglm(words: str) -> None:
    assert starts_riglm(words.split())


@pytest.mark.parametrize(
    "words",
    [
        "",
        "python server.py fs /home/me/riglm",
        "python server.py -m riglm",
        "python -m riglm_notes",
        "mcp-server-filesystem /home/me/riglm",
        "npx -y riglm-like riglm",
        "uvx mcp-server-git --repository /home/me/riglm",
        "uvx --from /home/me/riglm other",
        "uv --directory /home/me/riglm run server.py",
        "pipx run notes riglm",
    ],
)
def test_a_server_that_is_given_the_word_is_not(words: str) -> None:
    assert not starts_riglm(words.split())
