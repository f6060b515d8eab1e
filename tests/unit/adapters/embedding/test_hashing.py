"""The static embedder, and the text that is embedded."""

import os
import subprocess
import sys

import numpy as np

from riglm.adapters.embedding.hashing import MAX_CHARACTERS, HashingEmbedder, readable, text_hash


def test_the_vectors_are_the_same_in_every_process() -> None:
    program = (
        "from riglm.adapters.embedding.hashing import HashingEmbedder as H; import sys;"
        "sys.stdout.write(H().embed(['Search the web', '']).tobytes().hex())"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    }
    assert texts == {HashingEmbedder().embed(["Search the web", ""]).tobytes().hex()}


def test_the_vectors_are_those_of_version_1() -> None:
    """Stored vectors carry the version in the model's name: a change here needs another name."""
    row = HashingEmbedder().embed(["searchIssues: find open issues in 3 repositories"])[0]
    largest = np.argsort(-np.abs(row), kind="stable")[:4]
    assert [(int(place), round(float(row[place]), 4)) for place in largest] == [
        (126, 0.3625),
        (22, 0.2537),
        (36, -0.2537),
        (109, -0.2537),
    ]


def test_halves_of_a_pair_are_joined_and_lonely_ones_replaced() -> None:
    assert readable("a\ud83d\ude00b\ud83dc") == "a😀b\ufffdc"


def test_no_more_than_the_beginning_is_embedded() -> None:
    assert readable("x" * (MAX_CHARACTERS + 5)) == "x" * MAX_CHARACTERS
    assert text_hash("x" * (MAX_CHARACTERS + 5)) == text_hash("x" * (MAX_CHARACTERS + 6))
