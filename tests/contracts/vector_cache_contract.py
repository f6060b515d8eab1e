"""What every cache of vectors must do: subclass `VectorCacheContract` and give it an empty cache."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from riglm.domain.prediction import Vector
from riglm.ports.embedder import VectorCachePort


def a_vector(*numbers: float) -> Vector:
    """A vector of these numbers, whatever its length."""
    return np.array(numbers, dtype=np.float32)


class VectorCacheContract:
    """Override the fixture `vectors` with a cache that is empty and has room for 1,300 small vectors."""

    @pytest.fixture
    def vectors(self) -> VectorCachePort:
        """The cache under test, empty."""
        raise NotImplementedError

    def test_an_empty_cache_knows_nothing(self, vectors: VectorCachePort) -> None:
        """Asking needs no vectors."""
        assert dict(vectors.get_many("minilm", ["a"])) == {}
        assert dict(vectors.get_many("minilm", [])) == {}

    def test_a_vector_comes_back_exactly(self, vectors: VectorCachePort) -> None:
        """Single precision loses nothing."""
        kept = a_vector(1 / 3, -2 / 3, 1e-30)
        vectors.put_many("minilm", {"a": kept})
        found = vectors.get_many("minilm", ["a", "missing"])
        assert list(found) == ["a"]
        assert found["a"].dtype == np.float32
        assert found["a"].tolist() == kept.tolist()

    @pytest.mark.parametrize("shape", [(3, 2), (1, 2), (0, 2), (0, 0)])
    def test_a_matrix_comes_back_with_its_shape(self, vectors: VectorCachePort, shape: tuple[int, int]) -> None:
        """Also one of a single row, and one without any."""
        matrix = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        vectors.put_many("minilm", {"tokens": matrix})
        found = vectors.get_many("minilm", ["tokens"])["tokens"]
        assert found.shape == shape
        assert found.tolist() == matrix.tolist()

    def test_models_have_vectors_of_their_own(self, vectors: VectorCachePort) -> None:
        """Equal texts are told apart by model."""
        vectors.put_many("minilm", {"a": a_vector(1, 0)})
        vectors.put_many("bge", {"a": a_vector(0, 1, 0)})
        assert vectors.get_many("minilm", ["a"])["a"].tolist() == [1, 0]
        assert vectors.get_many("bge", ["a"])["a"].tolist() == [0, 1, 0]
        assert dict(vectors.get_many("other", ["a"])) == {}

    def test_what_is_there_already_stays(self, vectors: VectorCachePort) -> None:
        """The first vector of a text counts."""
        vectors.put_many("minilm", {"a": a_vector(1, 0)})
        vectors.put_many("minilm", {"a": a_vector(0, 1), "b": a_vector(0, 1)})
        found = vectors.get_many("minilm", ["a", "b"])
        assert (found["a"].tolist(), found["b"].tolist()) == ([1, 0], [0, 1])

    def test_what_is_not_finite_is_not_kept(self, vectors: VectorCachePort) -> None:
        """One bad vector does not keep the others out."""
        vectors.put_many(
            "minilm", {"bad": a_vector(float("nan"), 1), "worse": a_vector(float("inf"), 1), "good": a_vector(1)}
        )
        assert list(vectors.get_many("minilm", ["bad", "worse", "good"])) == ["good"]

    def test_what_is_kept_can_be_changed_by_nobody(self, vectors: VectorCachePort) -> None:
        """Neither by whoever gave it nor by whoever asked for it."""
        mine = a_vector(1, 0)
        vectors.put_many("minilm", {"a": mine})
        mine[0] = 5
        found = vectors.get_many("minilm", ["a"])["a"]
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 7
        assert vectors.get_many("minilm", ["a"])["a"].tolist() == [1, 0]

    def test_many_vectors_are_put_and_got_at_once(self, vectors: VectorCachePort) -> None:
        """More than one statement takes."""
        many = {f"hash {number}": a_vector(number) for number in range(1200)}
        vectors.put_many("minilm", many)
        found = vectors.get_many("minilm", [*many, *many])
        assert {hash_: vector.tolist() for hash_, vector in found.items()} == {
            hash_: vector.tolist() for hash_, vector in many.items()
        }

    def test_threads_may_share_a_cache(self, vectors: VectorCachePort) -> None:
        """Nothing that was put is lost."""

        def put(number: int) -> list[float]:
            vectors.put_many("minilm", {"all": a_vector(7), f"{number}": a_vector(number)})
            found: list[float] = vectors.get_many("minilm", [f"{number}"])[f"{number}"].tolist()
            return found

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(put, range(40))) == [[float(number)] for number in range(40)]
        assert len(vectors.get_many("minilm", [f"{number}" for number in range(40)])) == 40
