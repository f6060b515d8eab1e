"""How riglm is: for people, for those who restart it, and for Prometheus."""

from collections.abc import Callable
from typing import Annotated, Final

from fastapi import Header, Request, Response

from riglm.adapters.control.request import told
from riglm.adapters.control.route import operations
from riglm.adapters.control.shapes import Port
from riglm.domain.control import ControlUnavailableError
from riglm.domain.schemas.control_api import EmbedderSignal, Health, Readiness

MetricsSource = Callable[[str], tuple[bytes, str]]
"""Gives, for an Accept header, the text of all metrics and its media type."""

router: Final = operations("health")


@router.get("/health", summary="How riglm is", responses=told(503), response_model=Health)
async def health(port: Port) -> object:
    """Servers, store and embedder; the status is 200 as long as riglm answers."""
    return await port.health()


@router.get(
    "/ready",
    summary="Whether clients can be served as they should be",
    responses={**told(), 503: {"model": Readiness, "description": "Not ready; see `reasons`."}},
    response_model=Readiness,
)
async def ready(port: Port, response: Response) -> object:
    """Readiness for load balancers."""
    try:
        readiness = await port.readiness()
    except ControlUnavailableError as error:
        readiness = Readiness(ready=False, reasons=(str(error),))
    response.status_code = 200 if readiness.ready else 503
    return readiness


@router.get("/embedder", summary="The embedder's capability signal", responses=told(503), response_model=EmbedderSignal)
async def embedder(port: Port) -> object:
    """The embedder that is used, next to the configured one."""
    return await port.embedder()


@router.get(
    "/metrics",
    summary="All metrics, for Prometheus",
    responses={
        **told(),
        200: {
            "description": "In the text format of Prometheus, or of OpenMetrics when that is asked for.",
            "content": {
                "text/plain": {"schema": {"type": "string"}},
                "application/openmetrics-text": {"schema": {"type": "string"}},
            },
        },
    },
    response_class=Response,
)
async def metrics(request: Request, accept: Annotated[str, Header(include_in_schema=False)] = "") -> Response:
    """What happened since this process started, and how it is now."""
    source: MetricsSource = request.app.state.metrics
    text, media_type = source(accept)
    return Response(text, headers={"Content-Type": media_type})
