"""The configuration in force: shown without its secrets, and changed whole or not at all."""

import re
from typing import Annotated, Any, Final

import msgspec
from fastapi import Body, Header
from pydantic import WithJsonSchema
from starlette.responses import Response

from riglm.adapters.control.problems import describe_problems
from riglm.adapters.control.strict_route import Proxy, create_router
from riglm.application.control import running_proxy
from riglm.domain.control import PreconditionError
from riglm.domain.schemas.settings import Settings

_REFERENCE: Final = "#/components/schemas/Configuration"
_NULL: Final = {"type": "null"}
_VERSION: Final = re.compile(r'(?:W/)?"([0-9]{1,15})"')

router: Final = create_router("configuration", 503)


_ETAG: Final = {"schema": {"type": "string"}, "required": True, "description": "The version, for If-Match."}
_DISCLOSED: Final[dict[str, Any]] = {
    "content": {"application/json": {"schema": {"$ref": _REFERENCE}}},
    "description": "The configuration in use; `***` replaces a secret.",
    "headers": {"ETag": _ETAG},
}


@router.get("/config", summary="The configuration in force", responses={200: _DISCLOSED})
async def get_configuration(proxy: Proxy) -> Response:
    """The whole configuration including defaults; `***` replaces a secret."""
    shown = await running_proxy.get_configuration(proxy)
    return _answer(shown.document, shown.version)


@router.put(
    "/config",
    summary="Change the configuration",
    responses={**describe_problems(400, 408, 409, 412, 413, 415), 200: _DISCLOSED},
)
async def put_configuration(
    proxy: Proxy,
    document: Annotated[dict[str, Any], Body(), WithJsonSchema({"$ref": _REFERENCE})],
    *,
    if_match: Annotated[
        str | None,
        Header(
            alias="If-Match",
            pattern=r'^(\*|(W/)?"[!#-~]{0,200}")$',
            description="Change it only if this is the version in force: an ETag, as given.",
        ),
    ] = None,
) -> Response:
    """Replace the whole document or parts of it: missing keys stay, null restores the default, `***` keeps a secret.

    It counts for all that begins from then on; calls that run end as they began. What is not valid as a whole changes
    nothing. The change is kept in the store, above the file and the environment, and all riglm processes on that store
    follow it; `riglm config reset` removes it. A key that is read at the start only is refused.
    """
    expected = None if if_match in {None, "*"} else _parse_version(str(if_match))
    changed = await running_proxy.put_configuration(proxy, document, expected_version=expected)
    return _answer(changed.document, changed.version)


def parts_of_the_schema() -> dict[str, Any]:
    """The schemas of a configuration of which any part may be left out, by their names in the OpenAPI document."""
    schema = Settings.model_json_schema(by_alias=True, ref_template=_REFERENCE + "{model}")
    named = {f"Configuration{name}": part for name, part in schema.pop("$defs").items()}
    return {name: _partial(part) for name, part in (named | {"Configuration": schema}).items()}


def _answer(document: Any, version: int) -> Response:
    headers = {"ETag": f'"{version}"'}
    return Response(msgspec.json.encode(document), headers=headers, media_type="application/json")


def _parse_version(tag: str) -> int:
    """Return the version of an ETag.

    Raises:
        PreconditionError: it is not of riglm's configuration.
    """
    found = _VERSION.fullmatch(tag)
    if found is None:
        raise PreconditionError(
            f"If-Match: {tag} is no version of this configuration — fix: give the ETag of GET /config"
        )
    return int(found[1])


def _partial(part: dict[str, Any]) -> dict[str, Any]:
    """An object of which every member may be left out, or be null for its default."""
    if "properties" not in part:
        return part
    optional = {name: _optional(member) for name, member in part["properties"].items()}
    return {key: value for key, value in part.items() if key != "required"} | {"properties": optional}


def _optional(member: dict[str, Any]) -> dict[str, Any]:
    kinds = [_plain(kind) for kind in member.get("anyOf", ()) or [member]]
    about = {"description": member["description"]} if "description" in member else {}
    return {**about, "anyOf": [*(kind for kind in kinds if kind != _NULL), _NULL]}


def _plain(kind: dict[str, Any]) -> dict[str, Any]:
    """What a value must be, secret or not: a masked one is shown as well."""
    about = {"default", "description", "title", "writeOnly", "format"}
    plain = {key: value for key, value in kind.items() if key not in about}
    if isinstance(plain.get("additionalProperties"), dict):
        plain["additionalProperties"] = _plain(plain["additionalProperties"])
    return plain
