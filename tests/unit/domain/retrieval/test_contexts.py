import numpy as np
import pytest

from riglm.domain.learning import learning_scope
from riglm.domain.retrieval.contexts import MIN_CONTEXTS, LearnedContexts, QuantizedVectors


def test_products_of_quantized_vectors_are_almost_those_of_the_vectors_and_exact_for_the_same_one():
    vectors = np.random.default_rng(1).standard_normal((1200, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    quantized = QuantizedVectors(384)
    for number, vector in enumerate(vectors):
        quantized.append(vector, number)
    products = quantized.products(vectors[700])
    assert np.abs(products - vectors @ vectors[700]).max() < 0.005
    assert products[700] == pytest.approx(1.0, abs=1e-6)


def test_a_vector_of_zeros_is_similar_to_nothing():
    quantized = QuantizedVectors(3)
    quantized.append(np.zeros(3, np.float32), 0)
    assert quantized.products(np.array([1.0, 0.0, 0.0], np.float32)).tolist() == [0.0]


@pytest.mark.parametrize(("learned", "expected"), [(MIN_CONTEXTS - 1, {"a", "b", ""}), (MIN_CONTEXTS, {"a"})])
def test_contexts_of_all_profiles_of_the_principal_count_while_a_profile_has_few(learned, expected):
    contexts, vector = LearnedContexts(), np.array([1.0, 0.0], np.float32)
    profiles = ["a"] * learned + ["b", "", "else"]
    for profile in profiles:
        scope = learning_scope("other" if profile == "else" else "me", profile)
        contexts.add(scope, "m", vector, [])
    overall = contexts.similarity(learning_scope("me", "a"), "m", vector, []).overall
    assert {profile for profile, found in zip(profiles, overall, strict=True) if found > 0} == expected
