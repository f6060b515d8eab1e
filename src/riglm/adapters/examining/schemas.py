"""JSON Schema, as the library of that name knows it."""

from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.validators import validator_for

from riglm.ports.examining import SchemaJudgePort

_LONGEST: Final = 200


class JsonSchemaJudge(SchemaJudgePort):
    """Holds schemas against the meta-schema that they name, by default that of 2020-12."""

    def fault(self, schema: Any) -> str | None:
        """Why this is no JSON Schema; None when it is one."""
        try:
            validator_for(schema, default=Draft202012Validator).check_schema(schema)
        except SchemaError as error:
            place = "/".join(map(str, error.absolute_path))
            words = " ".join(error.message.split())[:_LONGEST]
            return f"{place}: {words}" if place else words
        except RecursionError:
            return "it is nested too deeply"
        return None
