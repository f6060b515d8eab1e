"""Real load balancers with the configurations of the documentation, in front of riglm processes."""

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.interaction.stage import Process
from tests.started import free_port

PAGE: Final = Path(__file__).parents[2] / "docs" / "how-to" / "many-processes.md"
LOAD_BALANCERS: Final = ("nginx", "haproxy")
"""Programs, which are also the languages of their blocks on the page."""

_SYSTEM_PATH: Final = "/usr/local/sbin:/usr/sbin"
"""Directories of servers, which the PATH of an ordinary user lacks on Debian."""

_LISTEN: Final = {"nginx": "listen 443 ssl;", "haproxy": "bind :443 ssl crt /etc/haproxy/mcp.example.com.pem"}
_NGINX: Final = """\
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
access_log off;
client_body_temp_path {folder}/body;
proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi;
scgi_temp_path {folder}/scgi;
{page}
}}
"""


class NoLoadBalancerError(Exception):
    """Raised when the program is not installed; the message contains the command that installs it."""


def read_configuration(program: str, page: str) -> str:
    """Return the block of the page for this program.

    Raises:
        AssertionError: the page has none, or several.
    """
    blocks = re.findall(rf"^```{program}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"{PAGE} needs one block for {program}, and has {len(blocks)}"
    return str(blocks[0])


def adapt_configuration(program: str, text: str, port: int, ports: Mapping[int, int]) -> str:
    """Return the configuration for a load balancer that listens on `port` of loopback without TLS.

    `ports` are the ports of riglm by those of the page.

    Raises:
        AssertionError: the configuration lacks a port or the address to listen on, or names a port not in `ports`.
    """
    listen = _LISTEN[program]
    assert text.count(listen) == 1, f"{PAGE}: {program} does not listen by {listen!r}"
    text = text.replace(listen, f"{listen.split()[0]} 127.0.0.1:{port}{';' if listen.endswith(';') else ''}")
    return re.sub(r"\b87\d\d\b", lambda found: str(ports[int(found[0])]), text)


@contextlib.contextmanager
def run_load_balancer(program: str, ports: Mapping[int, int], env: Mapping[str, str]) -> Iterator[str]:
    """Run a load balancer with the configuration of the page, and return its origin.

    Raises:
        NoLoadBalancerError: it is not installed.
    """
    path = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PATH}")
    if path is None:
        raise NoLoadBalancerError(f"{program} is not installed; as root: apt-get install haproxy nginx-light")
    port = free_port()
    page = adapt_configuration(program, read_configuration(program, PAGE.read_text("utf-8")), port, ports)
    with tempfile.TemporaryDirectory(prefix=f"riglm-{program}-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        configuration, errors = folder / f"{program}.conf", folder / "stderr"
        configuration.write_text(_NGINX.format(folder=folder, page=page) if program == "nginx" else page)
        options = ["-p", name, "-e", "stderr", "-c"] if program == "nginx" else ["-db", "-f"]
        process = Process([path, *options, str(configuration)], env, errors)
        try:
            process.wait_for_port(port)
            yield f"http://127.0.0.1:{port}"
        except BaseException as error:
            error.add_note(f"{program}: {errors.read_text(errors='replace')[-2000:]}")
            raise
        finally:
            process.end()
