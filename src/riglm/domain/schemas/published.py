"""The configuration's JSON Schema, for editors and for the reference."""

from typing import Any

from riglm.domain.schemas.settings import Settings

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of `riglm.yaml`."""
    return {"$schema": SCHEMA_ID, **Settings.model_json_schema(by_alias=True), "title": "riglm.yaml"}
