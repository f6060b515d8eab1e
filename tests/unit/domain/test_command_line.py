import json
import re
import shlex

import pytest

from riglm.cli.setup_access import Cover
from riglm.domain.redaction import Redactor, looks_random, mask_command, secrets_of_command


@pytest.mark.parametrize(
    ("words", "masked"),
    [
        (["srv", "--token", "abc", "x"], ["srv", "--token", "***", "x"]),
        (["srv", "--api-key=abc"], ["srv", "--api-key=***"]),
        (["env", "GITHUB_TOKEN=abc", "PLAIN=abc"], ["env", "GITHUB_TOKEN=***", "PLAIN=abc"]),
        (["srv", "--token"], ["srv", "--token"]),
        (["srv", "--url", "http://a:b@h/?q=1"], ["srv", "--url", "http://***@h/?***"]),
        (["srv", "--header", "Authorization: Bearer abc"], ["srv", "--header", "Authorization: ***"]),
        (["srv", "--header", "X-Api-Key: v"], ["srv", "--header", "X-Api-Key: ***"]),
        (["srv", "--pat", "v", "--key", "v", "--auth", "v"], ["srv", "--pat", "***", "--key", "***", "--auth", "***"]),
        (["srv", "-p", "v", "-pv4lue"], ["srv", "-p", "***", "***"]),
        (["sh", "-c", "curl -u me:pw host"], ["sh", "-c", "curl -u me:*** host"]),
        (["srv", "https://h/s/SECRET/mcp"], ["srv", "https://h/s/***/mcp"]),
        (["npx", "-y", "mcp-remote", "https://h/mcp"], ["npx", "-y", "mcp-remote", "https://h/mcp"]),
        (["npx", "-y", "sk3fa9c2e17b0d", "stdio"], ["npx", "-y", "***", "stdio"]),
        (
            ["srv", "--log-level", "debug", "--path", "/srv/x9f8e7d6c5b4"],
            ["srv", "--log-level", "debug", "--path", "/srv/x9f8e7d6c5b4"],
        ),
    ],
)
def test_of_a_command_all_but_its_secrets_is_shown(words: list[str], masked: list[str]) -> None:
    assert mask_command(words) == masked


JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
COMMANDS = f"""
docker run -i --rm -e API_KEY=<sk-proj-9aZ81kQ0vLm> -v /home/me/data:/data ghcr.io/github/github-mcp-server:0.4.1
docker run -p 8080:80 -u 1000:1000 --mount type=bind,src=/home/me,dst=/projects mcp/files@sha256:{"0a" * 32} /projects
podman run -i --env-file ./.env --env=DB_PASS=<hunter> docker.io/mcp/postgres:latest postgresql://<me:s3cret>@db:5432/x
docker run -i --rm -eSLACK_BOT_TOKEN=<xoxb-1234-5678-abcdef> mcp/slack
python -m my_server --since 2024-11-05 --at 2024-11-05T10:00:00Z --limit 300000 12
npx -y @modelcontextprotocol/server-filesystem /Users/ann/Desktop '/Users/ann/My Documents'
npx -y mcp-remote https://mcp.linear.app/sse --header 'Authorization: <Bearer lin_api_4kTz81LmQ>' --transport sse-only
npx -y @supabase/mcp-server-supabase@latest --access-token <sbp_0123456789abcdef> --project-ref abcdefghijklm
npx -y firecrawl-mcp <fc-0123456789abcdef0123>
npx -y @smithery/cli@latest run @upstash/context7-mcp --key <d9428888-122b-11e1-b85c-61cd3cbb3210>
npx -y @playwright/mcp@0.0.30 --browser chrome --viewport-size 1280x720 --no-auth chrome
uvx mcp-server-qdrant --token=<abcdef> fastmcp duckdb
uvx mcp-neo4j-cypher --db-url bolt://localhost:7687 --username neo4j --password <hunter> ms365 md2pdf
uvx mcp-atlassian --jira-url https://c.atlassian.net --jira-username me@c.com --jira-token <ATATT3xFfGF0abc>
uv run --directory /srv/tools server.py --model claude-3-5-sonnet-20241022 --temperature 0.7 gpt-4o-mini llama3.1:8b
node /opt/build/index.js --log-level DEBUG --max-tokens 4096 --timeout 86400000 --region eu-west-1 x86_64
node dist/index.js <wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY> </9j4AAQSkZJRgABAQEAYABgAAD>
node dist/index.js </auJb6DcUmKK7PJ/L42zWrW0W/qczK0Q> /Users/Ann/Projects2/Build7X /home/me/2f9a7c1e4b3d/x
node server.js <c2VjcmV0LWtleS1mb3ItdGhlLXNlcnZlcg==> <{JWT}> <3f2c9a77b1d04e5f8a7b9c0d1e2f3a4b>
python srv.py 'Server=db.example.com;Database=Sales;User Id=sa;Password=<hunter>;'
srv --dsn '<host=db password=hunter user=me>' redis://<:hunter>@cache:6379/0
srv mongodb+srv://<me:p4ss>@cluster0.ab1cd.mongodb.net/db?<retryWrites=true>
srv -DapiKey=<abc123> -Dport=8080 -jar /opt/x.jar -port 8080 -path /tmp
srv <AKIAIOSFODNN7EXAMPLE> <ghp_abcdefghij0123456789> <AB12-CD34-EF56-GH78> <abcd1234efgh5678>
sh -c 'API_KEY=<hunter> exec npx -y srv --port 3000'
cmd /c 'npx -y @org/server --api-key <hunter>' --region us-east-1a
srv --client-id <3f2c9a77-b1d0-4e5f-8a7b-9c0d1e2f3a4b> --client-secret=<hunter> --tenant contoso.onmicrosoft.com
srv 'X-Api-Key: <v4lue>' --cookie '<sid=hunter>' -H 'Cookie: <sid=hunter>' config set token <hunter>
mcp-proxy --headers Authorization '<Bearer hunter>' https://h/sse
srv --webhook <https://hooks.slack.com/services/T000AB/B000CD/XyZ123abC456> --auth-url https://login.example.com/oauth
srv '<${{API_KEY:-sk-live-abc123}}>' --api-key '${{API_KEY}}' --name GitHub SELECT
srv --config 'C:\\Users\\ann\\mcp.json' '%APPDATA%\\mcp' --instructions "You're a helpful agent. Be brief, please."
"""
"""With the secrets in angle brackets."""


@pytest.mark.parametrize("line", COMMANDS.strip().splitlines())
def test_of_a_realistic_command_only_the_secrets_are_covered(line: str) -> None:
    words = shlex.split(re.sub("<([^>]*)>", r"\1", line))
    masked = shlex.split(re.sub("<([^>]*)>", "***", line))
    assert mask_command(words) == masked
    document = {"mcpServers": {"it": {"command": words[0], "args": words[1:]}}}
    assert json.loads(Cover(document)(json.dumps(words))) == masked


def test_the_secrets_of_a_command_are_found_in_options_and_urls() -> None:
    words = ["srv", "--password", "first", "postgres://me:second@h/db?sslkey=third"]
    assert secrets_of_command(words) == ["first", "second", "third"]


def test_a_header_s_value_is_known_with_and_without_its_scheme() -> None:
    words = ["mcp-remote", "--header", "X-Api-Key: correct-horse", "-p", "hunter2", "--name", "production"]
    assert secrets_of_command(words) == ["correct-horse", "hunter2"]
    of_header = secrets_of_command(["srv", "--header", "Authorization: Bearer f00dfeed"])
    assert Redactor(of_header)("refused: f00dfeed") == "refused: ***"


@pytest.mark.parametrize(
    "text",
    ["3f2c9a77", "SECRET", "sk-live-abc123def", "AKIAIOSFODNN", "xkcdqwrtzp", "d9428888-122b-11e1-b85c-61cd3cbb3210"],
)
def test_keys_and_identifiers_look_random(text: str) -> None:
    assert looks_random(text)


@pytest.mark.parametrize(
    "text", ["mcp", "v2", "server-memory", "my_server", "getThings", "2025-11-25", "oauth2", "SSE"]
)
def test_words_and_versions_do_not_look_random(text: str) -> None:
    assert not looks_random(text)
