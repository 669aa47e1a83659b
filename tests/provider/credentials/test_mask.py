"""Secrets hidden wherever they turn up, in whatever spelling."""

import base64
import json
import time
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
    quote(base64.b64encode(SECRET.encode()).decode(), safe=""),
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
    mask(secret).text("\\" * 20_000 + "%25" * 20_000)
    assert time.monotonic() - began < 5
