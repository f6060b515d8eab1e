import subprocess
import sys
from pathlib import Path

from tests.unit.adapters.control.conftest import Served

SCRIPT = Path(__file__).parents[4] / "docs" / "reference" / "generate_control.py"


def test_the_reference_of_the_api_is_current():
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_operation_declares_what_access_may_answer(served: Served):
    document = served.ask("GET", "/openapi.json").json
    assert document["openapi"].startswith("3.1")
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert {"401", "403", "421", "422"} <= set(operation["responses"]), (method, path)
            assert operation["responses"]["401"]["headers"]["WWW-Authenticate"]["required"]
