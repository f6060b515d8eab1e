"""What tests of several modules learn once."""

import asyncio
import shutil
from pathlib import Path

import pytest

from tests.integration.wire_client import teach


@pytest.fixture(scope="session")
def training_queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data in which the lesson is learned."""
    data = tmp_path_factory.mktemp("lessons")
    asyncio.run(teach(data))
    return data


@pytest.fixture
def example(training_queue: Path, tmp_path: Path) -> Path:
    """Such data of a test's own."""
    return shutil.copytree(training_queue, tmp_path / "data")
