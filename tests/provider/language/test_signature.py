"""Signatures of callbacks: each algorithm and encoding fits what it was made of, and nothing else."""

import base64
import hashlib
import hmac
from typing import Any

import pytest

from shared.provider.language.rules import Rules
from shared.provider.language.signature import Signature
from tests.support.asking import rules

KEY, BODY = "a key", b'{"status": "completed"} \xff'


def signature(**said: Any) -> Signature:
    file = rules("http://a.example", callback={"signature": {"header": "X-Signature", "secret": "env:KEY"} | said})
    assert file.callback.signature
    return file.callback.signature


def digest(algorithm: str = "sha256") -> bytes:
    return hmac.new(KEY.encode(), BODY, getattr(hashlib, algorithm)).digest()


@pytest.mark.parametrize("algorithm", ["sha256", "sha1", "sha512"])
@pytest.mark.parametrize(
    ("encoding", "encode"), [("hex", bytes.hex), ("base64", lambda one: base64.b64encode(one).decode())]
)
@pytest.mark.parametrize("prefix", ["", "v1="])
def test_what_the_provider_signed_fits(algorithm: str, encoding: str, encode: Any, prefix: str) -> None:
    made = signature(algorithm=f"hmac-{algorithm}", encoding=encoding, prefix=prefix)
    text = prefix + encode(digest(algorithm))
    assert made.fits({"x-signature": text}, BODY, KEY)
    assert made.fits({"x-signature": f" {text} "}, BODY, KEY)


def test_unless_said_otherwise_it_is_hmac_sha256_in_hex_of_either_case() -> None:
    assert signature().fits({"x-signature": digest().hex()}, BODY, KEY)
    assert signature().fits({"x-signature": digest().hex().upper()}, BODY, KEY)


@pytest.mark.parametrize("headers", [
    {}, {"x-signature": ""}, {"x-signature": "v1="}, {"x-signature": digest().hex()},
    {"x-signature": f"v1={digest().hex()[:-1]}"}, {"x-signature": f"v1={digest().hex()}0"},
    {"x-signature": f"v1={base64.b64encode(digest()).decode()}"}, {"x-signature": f"v1={digest('sha1').hex()}"},
    {"x-signature": "v1=Ünïcødé \ud800"}, {"x-other": f"v1={digest().hex()}"},
])  # fmt: skip
def test_anything_else_does_not_fit(headers: dict[str, str]) -> None:
    assert not signature(prefix="v1=").fits(headers, BODY, KEY)


@pytest.mark.promise("callbacks", "a payload without the signature that the file asks for changes nothing")
def test_another_body_or_another_key_does_not_fit() -> None:
    given = {"x-signature": digest().hex()}
    assert not signature().fits(given, BODY + b" ", KEY)
    assert not signature().fits(given, BODY, KEY + " ")


def test_a_file_need_not_speak_of_signatures() -> None:
    simplest: Rules = rules("http://a.example")
    assert not simplest.callback.signature
    assert not rules("http://a.example", callback={}).callback.signature
