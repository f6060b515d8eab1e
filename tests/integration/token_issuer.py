"""An OpenID provider whose grants and JWT access tokens are Authlib's, with signing keys that rotate."""

import json
import time

import httpx2
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.integration.oauth import Client, Issuer

SECRET = "a secret of test clients"


class TokenIssuer(Issuer):
    """`audience` is that of all tokens. Set `is_down` to answer nothing but errors."""

    def __init__(self, audience):
        super().__init__()
        self.audience = audience
        self.keys, self.fetches, self.is_down = [], 0, False
        self.groups = {}
        self.rotate()

    def rotate(self, kind=RSAKey, size=2048):
        """Sign with a new key from now on, and publish no other."""
        self.keys = [kind.generate_key(size, {"use": "sig"}, auto_kid=True)]

    def start(self, url):
        """Issue JWTs under this URL."""
        self.url = url
        self.register_token_generator("default", _Jwt(self))

    def app(self):
        app = super().app()
        app.routes.append(Route("/.well-known/openid-configuration", self._metadata))
        app.routes.append(Route("/jwks", self._jwks))
        return app

    def token(self, user, *groups, scope="tools"):
        """An access token of a user in these groups, issued by Authlib's grant."""
        self.groups[user] = groups
        self.clients[user] = Client(user, SECRET, {"token_endpoint_auth_method": "client_secret_basic"})
        form = {"grant_type": "client_credentials", "scope": scope}
        response = httpx2.post(f"{self.url}/token", data=form, auth=(user, SECRET))
        return response.json()["access_token"]

    def signed(self, header=None, key=None, **claims):
        """A token with other claims, another header or another key than the issuer uses; None removes a claim."""
        key, now = key or self.keys[0], int(time.time())
        header = {"alg": "ES256" if isinstance(key, ECKey) else "RS256", "kid": self.keys[0].kid} | (header or {})
        whole = {"iss": self.url, "sub": "ann", "aud": self.audience, "iat": now, "exp": now + 600, "scope": "tools"}
        kept = {name: value for name, value in (whole | claims).items() if value is not None}
        return jwt.encode(header, kept, key, algorithms=[header["alg"]])

    async def _metadata(self, request: Request):
        response = await super()._metadata(request)
        if self.is_down or request.url.path.endswith("oauth-authorization-server"):
            return JSONResponse({}, 503)
        return JSONResponse({**json.loads(response.body), "jwks_uri": f"{self.url}/jwks"})

    async def _jwks(self, _: Request):
        self.fetches += 1
        keys = KeySet(self.keys).as_dict(private=False)
        return JSONResponse({}, 503) if self.is_down else JSONResponse(keys)


class _Jwt(JWTBearerTokenGenerator):
    def __init__(self, issuer):
        super().__init__(issuer.url)
        self._issuer = issuer

    def get_jwks(self):
        return KeySet(self._issuer.keys)

    def get_extra_claims(self, client, grant_type, user, scope):
        return {"groups": self._issuer.groups[client.client_id]}

    def get_audiences(self, client, user, scope):
        return self._issuer.audience
