"""Certificates of private authorities, by the variables that clients and servers use for them."""

import logging
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

VARIABLES: Final = ("NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Each names a file with certificates, or a directory of them, to trust in addition to those of the system."""

_log: Final = logging.getLogger("riglm.wire")


def create_ssl_context(
    context: ssl.SSLContext | None = None, environment: Mapping[str, str] = os.environ
) -> ssl.SSLContext:
    """Return a TLS context, by default that of the system, which also trusts the authorities in `VARIABLES`.

    A file that cannot be read is logged and left out.
    """
    context = context or ssl.create_default_context()
    paths = {environment.get(name, ""): name for name in VARIABLES}  # a file takes 50 ms, and all often name the same
    for path, name in paths.items():
        if not path:
            continue
        try:
            if Path(path).is_dir():
                context.load_verify_locations(capath=path)
            else:
                context.load_verify_locations(cafile=path)
        except OSError as error:  # ssl.SSLError is one
            _log.warning("certificates not loaded", extra={"variable": name, "path": path, "reason": str(error)})
    return context


def create_httpx_context() -> ssl.SSLContext:
    """Return the TLS context for clients of httpx2, which on macOS and Windows uses the store of the system."""
    import httpx2  # noqa: PLC0415  # a tenth of a second

    return create_ssl_context(httpx2.create_ssl_context())
