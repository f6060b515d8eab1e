"""The client that the suite runs in its OAuth scenarios: riglm signs in, and the reference client calls through it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

from benchmarks.conformance.judged import Judged
from benchmarks.subject import isolated

_NAME = "suite"
_MAX_SIGN_INS = 2
_BROWSER = f"{sys.executable} -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1])' %s"
_METADATA = "https://conformance-test.local/client-metadata.json"


def main(directory: str, judged: Judged, client: list[str], url: str) -> int:
    """Sign in as a user would, before the first call and when an error names the command; the client's exit code."""
    own = Path(tempfile.mkdtemp(prefix="signed-in-", dir=directory))
    config, auth = own / "riglm.yaml", _auth(own, url)
    config.write_text(json.dumps({"mcpServers": {_NAME: {"url": url, "auth": auth}}}))
    login = [*judged.command, "login", _NAME, "--config", str(config)]
    # riglm is the client that authorizes: the reference client sees a server without authorization.
    bare = {name: value for name, value in os.environ.items() if name != "MCP_CONFORMANCE_SCENARIO"}
    bare.pop("MCP_CONFORMANCE_CONTEXT", None)
    served = judged.served(["--config", str(config)], own)
    try:
        for _ in range(_MAX_SIGN_INS):
            subprocess.run(login, check=True, stdin=subprocess.DEVNULL, env=isolated(own) | {"BROWSER": _BROWSER})
            words = [*client, f"http://127.0.0.1:{served.port}/mcp"]
            done = subprocess.run(words, check=False, stderr=subprocess.PIPE, env=bare)
            sys.stderr.buffer.write(done.stderr)
            if f"riglm login {_NAME}".encode() not in done.stderr:
                break
        return done.returncode
    finally:
        served.process.stop()


def _auth(own: Path, url: str) -> dict[str, Any]:
    """What the user of a scenario configures."""
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    if "client_id" not in known:
        return {"client_metadata_url": _METADATA}
    auth = {name: known[name] for name in ("client_id", "client_secret") if name in known}
    auth["issuer"] = known.get("issuer") or _issuer(url)
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if "client-credentials" in scenario:
        auth["grant_type"] = "client_credentials"
    if "private_key_pem" in known:
        auth["private_key_file"] = _file(own / "key.pem", known["private_key_pem"])
    if "idp_id_token" in known:
        auth["grant_type"] = "identity_assertion"
        auth["identity_provider"] = {
            "token_endpoint": known["idp_token_endpoint"],
            "client_id": known["idp_client_id"],
            "id_token_file": _file(own / "id-token", known["idp_id_token"]),
        }
    return auth


def _issuer(url: str) -> str:
    """The authorization server of the scenario, which the suite does not give to clients without a user."""
    parts = urlsplit(url)
    document = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    with urlopen(document) as response:  # the suite's server on loopback
        return str(json.load(response)["authorization_servers"][0])


def _file(path: Path, content: str) -> str:
    path.write_text(content)
    return str(path)
