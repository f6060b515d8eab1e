"""Writes families of metrics down, in both formats that Prometheus reads.

The library's own writers look at each character of each label, which takes ten times as long; what takes that long, in
one thread, holds up the calls in another.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_SUFFIX_OF_TYPE: Final = {"counter": "_total", "info": "_info"}
_PLAIN_TYPE: Final = {"info": "gauge", "stateset": "gauge", "unknown": "untyped", "gaugehistogram": "histogram"}


def content_type(accept: str) -> str:
    """Return the format for an `Accept` header: OpenMetrics if it is named, otherwise the plain one."""
    return OPENMETRICS if OPENMETRICS.partition(";")[0] in accept.lower() else PLAIN


def written(families: Iterable[Metric], kind: str) -> bytes:
    """The families in the format of this content type."""
    is_open = kind == OPENMETRICS
    lines = [line for family in families for line in _lines(family, is_open=is_open)]
    if is_open:
        lines.append("# EOF")
    return "\n".join([*lines, ""]).encode()


def _lines(family: Metric, *, is_open: bool) -> Iterator[str]:
    name, kind = family.name, family.type
    if not is_open:  # it names what OpenMetrics calls the family by the name of its samples
        name += _SUFFIX_OF_TYPE.get(kind, "")
        kind = _PLAIN_TYPE.get(kind, kind)
    yield f"# HELP {name} {_help(family.documentation, is_open=is_open)}"
    yield f"# TYPE {name} {kind}"
    for sample in family.samples:
        yield f"{sample.name}{_labels(tuple(sample.labels.items()))} {float(sample.value)!r}"


def _help(words: str, *, is_open: bool) -> str:
    return _escaped(words) if is_open else words.replace("\\", "\\\\").replace("\n", "\\n")


@functools.lru_cache(maxsize=8192)
def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
