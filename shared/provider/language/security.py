"""Security schemes: which credentials a provider wants, and where they go. Secrets are named, never written down."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from shared.codec import Json
from shared.provider.language.reader import Reader
from shared.provider.wire.origin import has_origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """HTTP's own schemes: `bearer TOKEN`, or `basic` with a secret `user:password`."""

    scheme: Literal["bearer", "basic"]
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key in a header or the query, `prefix` before it."""

    place: Literal["header", "query"]
    name: str
    prefix: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth2:
    """OAuth 2.0 client credentials (RFC 6749, 4.4)."""

    token_url: str
    scopes: tuple[str, ...]
    client_id: str
    client_secret: str
    client_auth: Literal["basic", "post"]
    params: dict[str, Json]


Scheme: TypeAlias = Http | ApiKey | OAuth2


def read_scheme(reader: Reader) -> Scheme | None:
    """One entry of `security`; None for one that cannot be read, or is not supported."""
    kind = reader.one_of("type", "http", "apiKey", "oauth2", "sigv4")
    match kind:
        case "http":
            scheme: Scheme = Http(scheme=reader.one_of("scheme", "bearer", "basic"), secret=reader.reference("secret"))
        case "apiKey":
            scheme = _api_key(reader)
        case "oauth2":
            scheme = _oauth2(reader)
        case "sigv4":
            reader.fault("type", "sigv4 is not supported: nothing here signs requests")
            return None
        case _:
            return None
    reader.done()
    return scheme


def _api_key(reader: Reader) -> ApiKey:
    place = reader.one_of("in", "header", "query", "cookie")
    if place == "cookie":
        reader.fault("in", "cookie is not supported: no cookie is kept between tasks")
    return ApiKey(
        place=place,
        name=reader.get("name", str),
        prefix=reader.get("prefix", str, ""),
        secret=reader.reference("secret"),
    )


def _oauth2(reader: Reader) -> OAuth2:
    reader.one_of("flow", "clientCredentials", default="clientCredentials")
    token_url: str = reader.get("tokenUrl", str)
    if isinstance(reader.value.get("tokenUrl"), str) and not has_origin(token_url):
        reader.fault("tokenUrl", "must be an absolute http or https URL")
    return OAuth2(
        token_url=token_url,
        scopes=tuple(reader.texts("scopes", [])),
        client_id=reader.get("clientId", str),
        client_secret=reader.reference("clientSecret"),
        client_auth=reader.one_of("clientAuth", "basic", "post", default="basic"),
        params=reader.get("params", dict, {}),
    )
