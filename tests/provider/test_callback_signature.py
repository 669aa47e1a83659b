"""Callbacks are judged by secrets from the cache, which are read anew where that may help, but not for forgers."""

import hashlib
import hmac
from typing import Any

import pytest

from shared.errors import SecretUnavailable
from shared.provider.callback_signature import REREAD_SECONDS, Verifier
from shared.provider.language.signature import Signature
from tests.support.asking import Secrets, rules
from tests.support.clock import START_MS, Clock

BODY, URL = b'{"status": "completed"}', "https://api.example.com/callbacks/example/t"


def signature(**said: Any) -> Signature:
    plain = {} if "scheme" in said else {"header": "X-Signature"}
    file = rules("http://a.example", callback={"signature": {"secret": "env:HOOK"} | plain | said})
    assert file.callback.signature
    return file.callback.signature


class Desk:
    """A verifier, the secrets behind it, and a clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.secrets = Secrets({"env:HOOK": "first", "env:OTHER": "second"})
        self.verifier = Verifier(self.secrets, self.clock)

    def judge(self, key: str, of: Signature | None = None) -> str | None:
        """Why what was signed with that key is refused; None if it is not."""
        headers = {"x-signature": hmac.new(key.encode(), BODY, hashlib.sha256).hexdigest()}
        return self.verifier.refusal(of or signature(), headers, {BODY}, URL)

    def reads(self) -> int:
        """How often a secret was read anew since this was asked last."""
        count = sum(fresh for _, fresh in self.secrets.reads)
        self.secrets.reads.clear()
        return count


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_secret_comes_from_the_cache_as_long_as_it_fits(desk: Desk) -> None:
    for _ in range(3):
        assert desk.judge("first") is None
    assert desk.reads() == 0


def test_a_secret_that_was_exchanged_is_read_anew_and_the_callback_judged_again(desk: Desk) -> None:
    """C30."""
    assert desk.judge("first") is None
    desk.secrets.values["env:HOOK"] = "new"
    assert desk.judge("new") is None
    desk.clock.advance(REREAD_SECONDS)
    assert desk.judge("first") == "signature"
    assert desk.reads() == 2


def test_what_a_forger_has_read_before_a_key_is_exchanged_costs_no_callback(desk: Desk) -> None:
    """C30."""
    assert desk.judge("forged") == "signature"
    desk.secrets.values["env:HOOK"] = "new"
    desk.clock.advance(REREAD_SECONDS - 1)
    with pytest.raises(SecretUnavailable, match="env:HOOK: does not fit, and was read anew a moment ago"):
        desk.judge("new")
    desk.clock.advance(1)
    assert desk.judge("new") is None


@pytest.mark.promise("callbacks", "forgers have a secret read no more than once a minute")
def test_forgers_have_a_secret_read_once_a_minute(desk: Desk) -> None:
    """C30."""
    for _ in range(3):
        assert desk.judge("forged") == "signature"
        for _ in range(50):
            with pytest.raises(SecretUnavailable, match="was read anew a moment ago"):
                desk.judge("forged")
        assert desk.reads() == 1
        desk.clock.advance(REREAD_SECONDS)
    desk.clock.advance(-86_400)
    assert desk.judge("forged") == "signature"
    assert desk.reads() == 1  # a clock that was ahead does not keep it from that


def test_a_secret_that_cannot_be_read_is_tried_again_after_a_minute_whoever_calls(desk: Desk) -> None:
    desk.secrets.values.clear()
    for _ in range(50):
        with pytest.raises(SecretUnavailable, match="env:HOOK: ParameterNotFound"):
            desk.judge("first")
    assert len(desk.secrets.reads) == 1
    desk.secrets.values["env:HOOK"] = "first"
    desk.clock.advance(REREAD_SECONDS)
    assert desk.judge("first") is None


def test_while_a_secret_cannot_be_read_anew_that_of_the_cache_counts_and_others_are_to_come_again(desk: Desk) -> None:
    assert desk.judge("first") is None
    desk.secrets.values.clear()
    for _ in range(3):
        with pytest.raises(SecretUnavailable):
            desk.judge("new")
        assert desk.judge("first") is None
    assert desk.reads() == 1


def test_any_of_several_secrets_will_do(desk: Desk) -> None:
    both = signature(secret=["env:HOOK", "env:OTHER"])
    assert [desk.judge(key, both) for key in ("first", "second", "third")] == [None, None, "signature"]
    assert desk.reads() == 2
    del desk.secrets.values["env:HOOK"], desk.secrets.kept["env:HOOK"]
    assert desk.judge("second", both) is None
    with pytest.raises(SecretUnavailable):
        desk.judge("third", both)


@pytest.mark.parametrize("secret", ["", "first\n", " first", "fi\nrst"])
def test_a_secret_that_is_no_line_of_text_is_unusable(
    desk: Desk, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk.secrets.values["env:HOOK"] = secret
    with pytest.raises(SecretUnavailable, match=r"^env:HOOK: is empty, or no single line of text$"):
        desk.judge(secret)
    assert [(line.message, vars(line)["reference"]) for line in caplog.records] == [("secret unavailable", "env:HOOK")]


def test_a_secret_that_is_not_base64_is_unusable(desk: Desk) -> None:
    desk.secrets.values["env:HOOK"] = "whsec_first!"
    with pytest.raises(SecretUnavailable, match="env:HOOK: is not base64"):
        desk.judge("first", signature(header="X-Signature", key="base64"))


# --- when it was signed


@pytest.mark.promise("callbacks", "what was signed too long ago, or too far ahead, is refused")
@pytest.mark.parametrize(("seconds", "refused"), [
    (0, None), (300, None), (-300, None), (301, "timestamp"), (-301, "timestamp"), (10**9, "timestamp"),
])  # fmt: skip
def test_what_was_signed_outside_of_the_tolerance_is_refused_and_has_no_secret_read(
    desk: Desk, seconds: int, refused: str | None
) -> None:
    text = str(START_MS // 1000 - seconds)
    made = hmac.new(b"first", f"{text}.".encode() + BODY, hashlib.sha256).hexdigest()
    headers = {"stripe-signature": f"t={text},v1={made}"}
    assert desk.verifier.refusal(signature(scheme="stripe"), headers, {BODY}, URL) == refused
    assert bool(desk.secrets.reads) == (refused is None)
    longer = signature(scheme="stripe", timestamp={"tolerance": 301})
    assert (desk.verifier.refusal(longer, headers, {BODY}, URL) is None) == (abs(seconds) <= 301)


@pytest.mark.parametrize("text", ["", "t=soon", "t=1,t=2", "v1=00"])
def test_a_signature_that_does_not_say_when_is_refused_where_it_must(desk: Desk, text: str) -> None:
    headers = {"stripe-signature": text}
    assert desk.verifier.refusal(signature(scheme="stripe"), headers, {BODY}, URL) == "timestamp"
