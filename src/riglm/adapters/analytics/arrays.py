"""Arrays of numbers as bytes in single precision, little-endian. numpy is imported at the first use."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riglm.domain.prediction import Vector


def is_sound(array: "Vector") -> bool:
    """Whether it is a vector or a matrix of finite numbers."""
    import numpy as np  # noqa: PLC0415  # a writer that never meets a vector need not load it

    return array.ndim in {1, 2} and bool(np.isfinite(array).all())


def to_bytes(array: "Vector") -> bytes:
    """The numbers of an array, row by row."""
    import numpy as np  # noqa: PLC0415  # see is_sound

    return np.ascontiguousarray(array, dtype="<f4").tobytes()


def from_bytes(data: bytes, dimensions: int, rows: int | None = None) -> "Vector":
    """The array of these bytes, which cannot be changed: a vector, or a matrix when `rows` is not None."""
    import numpy as np  # noqa: PLC0415  # see is_sound

    shape = (dimensions,) if rows is None else (rows, dimensions)
    return np.frombuffer(data, dtype="<f4").reshape(shape)
