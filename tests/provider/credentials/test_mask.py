"""Secrets hidden wherever they turn up, in whatever spelling."""

import base64
import json
import quopri
import time
from collections.abc import Callable
from html import escape
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.provider.credentials.mask import MASKED, Mask

SECRET = 'sEcr3t/=k y+"<&ä'


def mask(*secrets: str) -> Mask:
    made = Mask()
    for secret in secrets:
        made.learn(secret)
    return made


SPELLINGS = [
    SECRET, quote(SECRET), quote(SECRET, safe=""), quote_plus(SECRET), quote(quote(SECRET, safe=""), safe=""),
    quote(SECRET, safe="").lower().replace("secr3t", "sEcr3t"), json.dumps(SECRET)[1:-1],
    json.dumps(SECRET, ensure_ascii=False)[1:-1],
    json.dumps(SECRET)[1:-1].replace("/", r"\/").replace("&", r"\u0026").replace("<", r"\u003C"),
    json.dumps(json.dumps(SECRET))[3:-3], base64.b64encode(SECRET.encode()).decode(),
    quote(base64.b64encode(SECRET.encode()).decode(), safe=""), base64.b64encode(SECRET.encode()).decode().rstrip("="),
    base64.urlsafe_b64encode(SECRET.encode()).decode(), base64.urlsafe_b64encode(SECRET.encode()).decode().rstrip("="),
    base64.b64encode(SECRET.encode()).decode().replace("/", r"\/").replace("+", r"\u002b"),
    escape(SECRET), escape(escape(SECRET)), SECRET.replace("+", "&#43;").replace("/", "&#x2F;").replace("=", "&#061;"),
    SECRET.encode("ascii", "xmlcharrefreplace").decode(), SECRET.replace("&", "&AMP;").replace("ä", "&auml;"),
    SECRET.replace("+", "&plus;").replace("/", "&sol;").replace(" ", "&#32;"),
    quopri.encodestring(SECRET.encode()).decode(), quopri.encodestring(SECRET.encode(), quotetabs=True).decode(),
]  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_secret_is_hidden_in_every_spelling(spelling: str) -> None:
    assert mask(SECRET).text(f"<{spelling}>") == f"<{MASKED}>"
    assert mask(SECRET).may_be_in(f"<{spelling}>".encode())


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.sampled_from([str, quote, quote_plus]))
def test_any_secret_is_hidden(secret: str, spelled: object) -> None:
    assert callable(spelled)
    assert mask(secret).text(spelled(secret)) == MASKED
    assert mask(secret).may_be_in(json.dumps(spelled(secret)).encode())


LONG = st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40)


@settings(deadline=None)
@given(LONG, st.binary(max_size=8), st.binary(max_size=8), st.booleans(), st.booleans(), st.sampled_from([str, quote]))
def test_any_secret_is_hidden_wherever_it_stands_in_base64(
    secret: str, before: bytes, behind: bytes, safe: bool, padded: bool, spelled: Callable[[str], str]
) -> None:
    """C32: what is left decodes to no more than a character of it at either edge."""
    encoded = (base64.urlsafe_b64encode if safe else base64.b64encode)(before + secret.encode() + behind).decode()
    text = spelled(encoded if padded else encoded.rstrip("="))
    assert mask(secret).may_be_in(json.dumps(text).encode())
    hidden = mask(secret).text(text)
    left, _, rest = hidden.partition(MASKED)
    assert MASKED in hidden
    assert len(left) <= len(spelled(encoded[: (len(before) * 8 + 5) // 6]))
    assert len(rest) <= len(spelled(encoded)) - len(spelled(encoded[: (len(before) + len(secret.encode())) * 8 // 6]))


@pytest.mark.parametrize("user", ["", "u", "us", "use", "user:"])
def test_a_secret_in_the_header_of_user_and_password_is_hidden(user: str) -> None:
    """C32."""
    header = "Basic " + base64.b64encode(f"{user}hunter22-hunter22".encode()).decode()
    hidden = mask("hunter22-hunter22").text(f"you sent {header}; no")
    assert hidden.startswith("you sent Basic ")
    assert hidden.endswith("MASKED; no")
    assert len(hidden) <= len(f"you sent Basic {header[6 : 6 + len(user) * 2]}MASKED; no")


@pytest.mark.parametrize("secret", ["a", "ab", "abcde"])
def test_a_short_secret_is_hidden_in_base64_that_is_all_of_it_and_nowhere_by_chance(secret: str) -> None:
    encoded = base64.b64encode(secret.encode()).decode()
    assert mask(secret).text(encoded) == MASKED
    for other in (base64.b64encode(f"12{secret}34".encode()).decode(), encoded.rstrip("=") + "Zz"):
        assert mask(secret).text(other) in (other, other.replace(secret, MASKED), other.replace(encoded, MASKED))


@pytest.mark.parametrize("content_type", [
    "text/plain; charset=utf-16", 'text/csv; charset="UTF-32LE"', "text/plain;charset=cp037",
    "text/plain; charset=utf-7",
])  # fmt: skip
def test_a_body_in_a_charset_that_writes_letters_otherwise_may_hold_a_secret(content_type: str) -> None:
    """C32: the cheap test says no only where `text` finds nothing."""
    body = "the sEcr3t-marker".encode(content_type.partition("charset=")[2].strip('"'))
    assert mask("sEcr3t-marker").may_be_in(body, content_type)
    for plain in (
        "text/plain; charset=utf-8",
        'text/csv; charset="UTF8"',
        "text/plain;charset=ISO-8859-1",
        "",
        "text/csv",
    ):
        assert not mask("sEcr3t-marker").may_be_in(b"nothing of it", plain)


def test_letters_may_be_escaped_in_json() -> None:
    """C32."""
    assert mask("sEcr3t-marker").may_be_in(rb'{"a": "\u0073Ecr3t-marker"}')
    assert not mask("sEcr3t-marker").may_be_in(rb'{"a": "\u00e4\u0026\u003c\u0020"}')
    assert not Mask().may_be_in(rb"\u0073")


@pytest.mark.parametrize(("secret", "spelled"), [("a%", "a%25"), ("%", "%25"), ("a\\", r"a\u005c"), ("a\\", r"a\\")])
def test_nothing_is_left_of_a_last_character_that_is_part_of_its_own_spelling(secret: str, spelled: str) -> None:
    assert mask(secret).text(f"-{spelled}-") == f"-{MASKED}-"


def test_it_is_hidden_in_names_and_values_of_any_depth_and_nothing_else_changes() -> None:
    value = {"a": [f"Bearer {SECRET}", 1, None, True, 1.5], SECRET: {"b": SECRET}, "c": "secret"}
    hidden = {"a": [f"Bearer {MASKED}", 1, None, True, 1.5], MASKED: {"b": MASKED}, "c": "secret"}
    assert mask(SECRET).value(value) == hidden
    assert mask("12345678").value([12345678, 123456789]) == [MASKED, 123456789]


def test_the_longest_secret_is_hidden_first_and_stands_in_for_what_it_was_given() -> None:
    made = mask("abc")
    made.learn("abc-def", r"one\1")
    assert made.text("abc-def abc") == rf"one\1 {MASKED}"


def test_a_text_that_almost_is_the_secret_costs_little() -> None:
    secret, began = "\\" * 2 + "%" * 8 + "key", time.monotonic()
    mask(secret).text("\\" * 20_000 + "%25" * 20_000 + "key")
    mask("AAAAAAAAAAAA" * 20).text("A" * 20_000 + "QUFBQUFBQUFBQUFBQUFB" * 2_000 + "=" * 20_000)
    assert time.monotonic() - began < 5


def test_a_large_value_is_hidden_in_without_a_copy() -> None:
    """A copy of what takes most of a function's memory would take the rest."""
    value = {"a": [{SECRET: SECRET}, "b"], "c": {"d": 1}}
    inner = value["a"]
    assert mask(SECRET).hide(value) is value
    assert value["a"] is inner
    assert value == {"a": [{MASKED: MASKED}, "b"], "c": {"d": 1}}


def test_a_value_stays_as_it_was_where_a_masked_one_is_made() -> None:
    value = [SECRET]
    assert (mask(SECRET).value(value), value) == ([MASKED], [SECRET])
