"""Security schemes: which credentials a provider wants, and where they go. Secrets are named, never written down."""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import field

from shared.provider.language.part import Part, Reference, Url, says

_SECRET = says("a reference, never the secret")


class Http(Part, frozen=True, tag_field="type", tag="http"):
    """HTTP's own schemes: a bearer token, or user and password."""

    scheme: Annotated[Literal["bearer", "basic"], says("`bearer`, or `basic` with a secret `user:password`")]
    secret: Annotated[Reference, _SECRET]


class ApiKey(Part, frozen=True, kw_only=True, tag_field="type", tag="apiKey"):
    """A key in a header or in the query."""

    where: Annotated[Literal["header", "query"], says("where the key goes")] = field(name="in")
    name: Annotated[str, says("of the header, or in the query")]
    prefix: Annotated[str, says("put before the key, such as `Key ` with its space")] = ""
    secret: Annotated[Reference, _SECRET]


class OAuth2(Part, frozen=True, kw_only=True, tag_field="type", tag="oauth2"):
    """OAuth 2.0 client credentials (RFC 6749, 4.4): a token is fetched, kept, and renewed once in a row on a 401."""

    flow: Annotated[Literal["clientCredentials"], says("the one that there is")] = "clientCredentials"
    token_url: Annotated[Url, says("absolute; its origin alone gets the client's secret")]
    scopes: Annotated[tuple[str, ...], says("what the token is to allow")] = ()
    client_id: Annotated[str, says("a value, not a reference")]
    client_secret: Annotated[Reference, _SECRET]
    client_auth: Annotated[
        Literal["basic", "post"], says("`basic`: in a header, form-encoded; `post`: in the form")
    ] = "basic"
    params: Annotated[dict[str, Any], says("further fields of the token request")] = field(default_factory=dict)


Scheme: TypeAlias = Http | ApiKey | OAuth2
