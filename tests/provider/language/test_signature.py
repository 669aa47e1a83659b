"""Signatures of callbacks: each algorithm and encoding fits what it was made of, and nothing else."""

import base64
import hashlib
import hmac
from typing import Any

import pytest

from shared.errors import ProviderFileError
from shared.provider.language.rules import Rules
from shared.provider.language.signature import Signature
from tests.support.asking import rules

KEY, BODY = "a key", b'{"status": "completed"} \xff'


def signature(**said: Any) -> Signature:
    plain = {} if "scheme" in said else {"header": "X-Signature"}
    file = rules("http://a.example", callback={"signature": {"secret": "env:KEY"} | plain | said})
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


# --- what providers publish of their own forms

STANDARD = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
STANDARD_BODY, STANDARD_KEY = b'{"test": 2432232314}', "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V"
    b"&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text="
    b"&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
    b"&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)


def changed(**headers: str | None) -> dict[str, str]:
    """The headers of Standard Webhooks' example, `-` written `_`; None takes one away."""
    named = STANDARD | {name.replace("_", "-"): value for name, value in headers.items()}
    return {name: value for name, value in named.items() if value is not None}


def test_the_example_of_standard_webhooks_fits_under_either_name_and_with_or_without_its_prefix() -> None:
    standard = signature(scheme="standard")
    svix = {name.replace("webhook-", "svix-"): value for name, value in STANDARD.items()}
    for headers in (STANDARD, standard.read(svix), standard.read(svix | STANDARD), standard.read(STANDARD)):
        assert standard.fits(headers, STANDARD_BODY, STANDARD_KEY)
        assert standard.fits(headers, STANDARD_BODY, STANDARD_KEY.removeprefix("whsec_"))
        assert standard.signed_at(headers) == 1_614_265_330_000
    assert standard.read({"svix-id": "a", "webhook-id": "b"})["webhook-id"] == "b"


@pytest.mark.parametrize("several", [
    "v1,AAAA {}", "{} v1,AAAA", "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNV== {}", "v1,AAAA,{}", "v1,AAAA, {}",
])  # fmt: skip
def test_one_of_several_digests_is_enough(several: str) -> None:
    headers = changed(webhook_signature=several.format(STANDARD["webhook-signature"]))
    assert signature(scheme="standard").fits(headers, STANDARD_BODY, STANDARD_KEY)


@pytest.mark.parametrize("headers", [
    changed(webhook_id="msg_other"), changed(webhook_id=None), changed(webhook_timestamp="1614265331"),
    changed(webhook_timestamp=None), changed(webhook_timestamp="1614265330,1614265331"),
    changed(webhook_signature=None), changed(webhook_signature=""), changed(webhook_signature="v1,"),
    changed(webhook_signature=STANDARD["webhook-signature"].removeprefix("v1,")),
    changed(webhook_signature=STANDARD["webhook-signature"].replace("v1,", "v2,")),
    changed(webhook_signature=STANDARD["webhook-signature"].replace("v1,", "xv1,")),
    changed(webhook_signature=STANDARD["webhook-signature"].lower()),
])  # fmt: skip
def test_whatever_is_signed_beside_the_body_must_be_as_it_was(headers: dict[str, str]) -> None:
    assert not signature(scheme="standard").fits(headers, STANDARD_BODY, STANDARD_KEY)


def test_a_key_that_is_not_base64_or_empty_is_a_fault_of_ours() -> None:
    for key in ("whsec_", "whsec_not base64", "whsec_\u00e9"):
        with pytest.raises(ValueError):  # noqa: PT011 (of whatever kind)
            signature(scheme="standard").fits(STANDARD, STANDARD_BODY, key)


def test_stripe_s_form_fits_with_any_of_its_digests_and_its_key_is_a_text() -> None:
    stripe, secret = signature(scheme="stripe"), "whsec_test"
    good = hmac.new(secret.encode(), b"1492774577." + BODY, hashlib.sha256).hexdigest()
    for text in (f"t=1492774577,v1={good},v0=6ffbb5", f"t=1492774577, v1=00, v1={good}", f"v1={good},t=1492774577"):
        assert stripe.fits({"stripe-signature": text}, BODY, secret)
        assert stripe.signed_at({"stripe-signature": text}) == 1_492_774_577_000
    for text in (f"t=1492774578,v1={good}", f"v1={good}", f"t=1492774577,v0={good}", f"t=1492774577,t=1,v1={good}"):
        assert not stripe.fits({"stripe-signature": text}, BODY, secret)
    mux = signature(scheme="stripe", header="Mux-Signature")
    assert mux.fits({"mux-signature": f"t=1492774577,v1={good}"}, BODY, secret)


def test_the_example_of_slack_fits() -> None:
    slack, key = signature(scheme="slack"), "8f742231b10e8888abcd99yyyzzz85a5"
    digest_ = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
    headers = {"x-slack-signature": digest_, "x-slack-request-timestamp": "1531420618"}
    assert slack.fits(headers, SLACK_BODY, key)
    assert not slack.fits(headers | {"x-slack-request-timestamp": "1531420619"}, SLACK_BODY, key)
    zoom = signature(scheme="slack", header="x-zm-signature", timestamp={"header": "x-zm-request-timestamp"})
    assert zoom.fits({"x-zm-signature": digest_, "x-zm-request-timestamp": "1531420618"}, SLACK_BODY, key)
    assert zoom.timestamp
    assert zoom.timestamp.tolerance == 300


def test_the_example_of_github_fits() -> None:
    github = signature(header="X-Hub-Signature-256", prefix="sha256=")
    text = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert github.fits({"x-hub-signature-256": text}, b"Hello, World!", "It's a Secret to Everybody")


def test_a_form_of_its_own_is_said_by_what_is_signed() -> None:
    """As Twitch (an id, RFC 3339 and the body) and HubSpot (method, URL, body and milliseconds) sign."""
    twitch = signature(
        header="Twitch-Eventsub-Message-Signature", prefix="sha256=",
        signed='${headers."twitch-eventsub-message-id"}${timestamp}${body}',
        timestamp={"header": "Twitch-Eventsub-Message-Timestamp"},
    )  # fmt: skip
    at = "2019-11-16T10:11:12.634234626Z"
    headers = {"twitch-eventsub-message-id": "e76c", "twitch-eventsub-message-timestamp": at}
    made = hmac.new(KEY.encode(), b"e76c" + at.encode() + BODY, hashlib.sha256).hexdigest()
    assert twitch.fits(headers | {"twitch-eventsub-message-signature": f"sha256={made}"}, BODY, KEY)
    assert twitch.signed_at(headers) == 1_573_899_072_634
    assert twitch.signed_headers(headers | {"location": "/x"}) == headers
    hubspot = signature(
        header="X-HubSpot-Signature-v3", encoding="base64", signed="POST${callback.url}${body}${timestamp}",
        timestamp={"header": "X-HubSpot-Request-Timestamp"},
    )  # fmt: skip
    text = b"POSThttps://a.example/callbacks/x/y" + BODY + b"1614265330000"
    made = base64.b64encode(hmac.new(KEY.encode(), text, hashlib.sha256).digest()).decode()
    headers = {"x-hubspot-signature-v3": made, "x-hubspot-request-timestamp": "1614265330000"}
    assert hubspot.fits(headers, BODY, KEY, "https://a.example/callbacks/x/y")
    assert not hubspot.fits(headers, BODY, KEY, "https://a.example/callbacks/x/z")
    assert hubspot.signed_at(headers) == 1_614_265_330_000


@pytest.mark.parametrize(("text", "at"), [
    ("1614265330", 1_614_265_330_000), ("1614265330123", 1_614_265_330_123),
    ("2021-02-25T15:02:10Z", 1_614_265_330_000), ("2021-02-25T16:02:10+01:00", 1_614_265_330_000),
    ("2021-02-25T15:02:10", 1_614_265_330_000), ("", None),
    ("-5", None), ("soon", None), ("9" * 400, None), ("1e9", None), ("0001-01-01T00:00:00", -62_135_596_800_000),
])  # fmt: skip
def test_an_instant_is_read_as_what_it_can_mean(text: str, at: int | None) -> None:
    assert signature(scheme="standard").signed_at(changed(webhook_timestamp=text)) == at


def test_a_signature_without_a_timestamp_tells_no_instant_and_vouches_for_no_header() -> None:
    headers = {"x-signature": digest().hex(), "location": "/elsewhere", "webhook-timestamp": "1614265330"}
    assert (signature().signed_at(headers), signature().signed_headers(headers)) == (None, {})


@pytest.mark.parametrize(("said", "fault"), [
    ({"header": ""}, "header is missing"),
    ({"signed": "${timestamp}", "timestamp": {"header": "x"}}, "signed must hold ${body}"),
    ({"signed": "${timestamp}.${body}"}, "timestamp and ${timestamp} in signed need each other"),
    ({"timestamp": {"header": "x"}}, "timestamp and ${timestamp} in signed need each other"),
    ({"signed": "${id}.${body}"}, "signed reads id"),
    ({"signed": "${headers.\"X-Id\"}.${body}"}, "signed reads headers.X-Id"),
    ({"signed": "${headers}.${body}"}, "signed reads headers"),
    ({"signed": "${callback.token}.${body}"}, "signed reads callback.token"),
    ({"signed": "${a b}.${body}"}, "in ${…} of signed"),
])  # fmt: skip
def test_a_form_that_cannot_be_judged_is_a_fault_of_the_file(said: Any, fault: str) -> None:
    with pytest.raises(ProviderFileError) as caught:
        signature(**said)
    assert str(caught.value).startswith(f"$.callback.signature: {fault}")


def test_several_secrets_are_references_one_and_all() -> None:
    assert signature(secret=["env:A", "ssm:/b"]).secret == ("env:A", "ssm:/b")
    wrongs: list[Any] = [[], ["env:A", "a value"], [1], {}, None]
    for wrong in wrongs:
        with pytest.raises(ProviderFileError, match=r"^\$\.callback\.signature\.secret: must be a reference"):
            signature(secret=wrong)
