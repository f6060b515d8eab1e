"""Arrays of numbers as bytes in single precision, little-endian. Whoever first needs one imports numpy."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from riglm.domain.prediction import Vector


def to_bytes(array: "Vector") -> bytes:
    """The numbers of an array, row by row. Raises `ValueError` when one of them is not finite."""
    import numpy as np  # noqa: PLC0415  # a writer that never meets a vector need not load it

    numbers = np.ascontiguousarray(array, dtype="<f4")
    if not np.isfinite(numbers).all():
        raise ValueError("a vector holds a number that is not finite")
    return numbers.tobytes()


def from_bytes(data: bytes, dimensions: int, rows: int | None = None) -> "Vector":
    """The array of these bytes, which cannot be changed: a vector, or a matrix when `rows` is not None."""
    import numpy as np  # noqa: PLC0415  # see to_bytes

    shape = (dimensions,) if rows is None else (rows, dimensions)
    return np.frombuffer(data, dtype="<f4").reshape(shape)
