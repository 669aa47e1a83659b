"""Security schemes of a provider file: secrets by reference only, and clear words for what is not supported."""

from typing import Any

import pytest

from local.provider.violations import violations
from shared.errors import ProviderFileError
from shared.provider.language.part import Reference, Url
from shared.provider.language.rules import Rules
from shared.provider.language.security import ApiKey, Http, OAuth2, Scheme
from tests.support.asking import file_at, rules

MARKER = "s3cr3t-marker"
BEARER = {"type": "http", "scheme": "bearer", "secret": "env:KEY"}
KEY = {"type": "apiKey", "in": "header", "name": "X-Key", "secret": "env:KEY"}
OAUTH = {"type": "oauth2", "tokenUrl": "https://login.example/token", "clientId": "us", "clientSecret": "env:KEY"}


def schemes(*security: dict[str, Any]) -> tuple[Scheme, ...]:
    return rules("http://a.example", security=list(security)).security


def faults(scheme: Any) -> str:
    """What `check` says, all at once; production says one of these."""
    file = file_at("http://a.example", security=[scheme])
    with pytest.raises(ProviderFileError) as caught:
        Rules.from_json(file)
    told = list(violations(file))
    assert str(caught.value).partition(": ")[0] in [fault.partition(": ")[0] for fault in told]
    assert MARKER not in str(caught.value)
    return "; ".join(told)


def without(scheme: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in scheme.items() if key not in keys}


def test_each_scheme_is_read_with_its_defaults() -> None:
    assert schemes(BEARER, BEARER | {"scheme": "basic"}, KEY, KEY | {"in": "query", "prefix": "T "}, OAUTH) == (
        Http(scheme="bearer", secret=Reference("env:KEY")), Http(scheme="basic", secret=Reference("env:KEY")),
        ApiKey(where="header", name="X-Key", prefix="", secret=Reference("env:KEY")),
        ApiKey(where="query", name="X-Key", prefix="T ", secret=Reference("env:KEY")),
        OAuth2(
            token_url=Url("https://login.example/token"), scopes=(), client_id="us", client_secret=Reference("env:KEY"),
            client_auth="basic", params={},
        ),
    )  # fmt: skip


def test_every_part_of_a_client_is_read() -> None:
    whole = OAUTH | {"flow": "clientCredentials", "scopes": ["a"], "clientAuth": "post", "params": {"audience": "x"}}
    assert schemes(whole) == (
        OAuth2(
            token_url=Url("https://login.example/token"), scopes=("a",), client_id="us",
            client_secret=Reference("env:KEY"), client_auth="post", params={"audience": "x"},
        ),
    )  # fmt: skip


def test_no_security_is_none() -> None:
    assert rules("http://a.example").security == ()


@pytest.mark.parametrize("reference", [
    "ssm:/a", "ssm:/a/b.c-d_e", "secretsmanager:a", "secretsmanager:a/b#key", "secretsmanager:arn:aws:x#k", "env:_A1",
])  # fmt: skip
def test_a_secret_is_named_by_a_reference(reference: str) -> None:
    assert schemes(BEARER | {"secret": reference}) == (Http(scheme="bearer", secret=Reference(reference)),)


@pytest.mark.parametrize("value", [
    MARKER, f"Bearer {MARKER}", f"ssm:{MARKER}", f"ssm: /{MARKER}", f"ssm:/a {MARKER}", f"env:{MARKER}",
    f"env:1{MARKER}", f"vault:{MARKER}", f"${{env:{MARKER}}}", f"env:A\n{MARKER}",
])  # fmt: skip
@pytest.mark.parametrize(("scheme", "key"), [(BEARER, "secret"), (KEY, "secret"), (OAUTH, "clientSecret")])
def test_a_secret_itself_is_refused_and_not_quoted(scheme: dict[str, Any], key: str, value: str) -> None:
    told = faults(scheme | {key: value})
    assert told.startswith(f"$.security[0].{key}: must be a reference")
    assert MARKER not in told


@pytest.mark.parametrize(("scheme", "told"), [
    ({"type": "sigv4", "service": "s3", "region": "eu-west-1"}, "$.security[0].type: sigv4 is not supported"),
    (KEY | {"in": "cookie"}, "$.security[0].in: cookie is not supported"),
    ({"type": "mutualTLS"}, "$.security[0].type: must be one of http, apiKey, oauth2"),
    ({}, "$.security[0].type: is missing"), ("bearer", "$.security[0]: must be an object"),
    (BEARER | {"scheme": "digest"}, "$.security[0].scheme: must be one of basic, bearer"),
    (without(BEARER, "secret"), "$.security[0].secret: is missing"),
    (BEARER | {"secret": 5}, "$.security[0].secret: must be a text"),
    (BEARER | {"colour": "blue"}, "$.security[0].colour: is not known"),
    (BEARER | {"type": "HTTP"}, "; did you mean http?"), (without(KEY, "name"), "$.security[0].name: is missing"),
    (without(KEY, "in"), "$.security[0].in: is missing"),
    (OAUTH | {"flow": "authorizationCode"}, "$.security[0].flow: must be one of clientCredentials"),
    (
        OAUTH | {"tokenUrl": "/token"},
        "$.security[0].tokenUrl: must be an absolute URL that begins with http:// or https://",
    ),
    (OAUTH | {"tokenUrl": "https://u:p@a.example/"}, "$.security[0].tokenUrl: must be an absolute URL"),
    (without(OAUTH, "tokenUrl"), "$.security[0].tokenUrl: is missing"),
    (OAUTH | {"scopes": [1]}, "$.security[0].scopes[0]: must be a text"),
    (OAUTH | {"clientAuth": "jwt"}, "$.security[0].clientAuth: must be one of basic, post"),
    (OAUTH | {"params": []}, "$.security[0].params: must be an object"),
])  # fmt: skip
def test_a_faulty_scheme_is_named_with_its_place_and_reason(scheme: Any, told: str) -> None:
    assert told in faults(scheme)


@pytest.mark.parametrize("kind", ["sigv4", "mutualTLS", "apikey", 5, None, ["http"]])
def test_a_wrong_type_is_one_fault(kind: Any) -> None:
    assert faults(KEY | {"type": kind}).count("$.") == 1


def test_every_fault_is_told_at_once() -> None:
    told = faults(KEY | {"in": "cookie", "secret": "x", "colour": 1})
    assert [told.count(f"$.security[0].{key}") for key in ("in", "secret", "colour")] == [1, 1, 1]


def test_the_text_of_a_scheme_shows_the_reference_only() -> None:
    assert "env:KEY" in repr(schemes(BEARER))
    assert isinstance(rules("http://a.example", security=[BEARER]), Rules)
