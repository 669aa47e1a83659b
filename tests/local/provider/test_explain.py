"""What a provider file will do, in sentences."""

import pytest

from shared.codec import Json
from tests.support.provider_tools import BASIC, HOOKED, OAUTH, QUERY_KEY, SIGNED, Call, Write, only, submit


def test_check_says_what_a_file_will_do(write: Write, call: Call) -> None:
    cancel = {"method": "DELETE", "url": "/jobs/${outputs.id}"}
    result = [{"url": "${response.body.files}"}, {"url": "${response.body.link}", "decode": "csv", "next": "body.next"}]
    path = write(cancel=cancel, result=result, progress="body.percent", partial="body.rows", freshness=7200)
    assert call("check", path) == 0
    assert call.lines == [
        f"{path}: sound",
        "It submits POST https://api.acme.example/jobs with a JSON body, and keeps id of the reply.",
        "A new request waits up to 5 s for that.",
        "It sends a bearer token from ssm:/acme/token to https://api.acme.example, and to no other origin.",
        (
            "It asks again with GET https://api.acme.example/jobs/${outputs.id}, every 2–120 s "  # noqa: RUF001
            "(after 2, 4, 8, 16, 32, … s, each at random down to 2 s), or when the reply says: Retry-After."
        ),
        "Its status is body.status.",
        "'succeeded' completes, once its result is fetched.",
        "'failed' fails with what the reply says of it.",
        (
            "An unknown 2xx counts as still running. No reply, half of one, or what edges and proxies say (429, 5xx …) "
            "is tried again, at most 10 times in a row. Any other reply fails with what it says."
        ),
        "A 404 within 30 s after the submit is tried again.",
        (
            "After success it fetches GET ${response.body.files}, then fetches GET ${response.body.link} as csv with "
            "every page that body.next leads to."
        ),
        (
            "Amid pages it waits where a 429 or 503 says for how long and the attempt has the time; else the next one "
            "goes on at the same page, or without SPILL_BUCKET begins at the first, until there are too many errors."
        ),
        "The data is body.data of the last reply.",
        "While it runs, body.rows is shown as partial data.",
        "Its progress is body.percent.",
        (
            "It fails with timeout 24 h after its first submit, and is cancelled with "
            "DELETE https://api.acme.example/jobs/${outputs.id}."
        ),
        "Completed data answers new requests for 2 h, a failure for 60 s.",
        "note: what APIs may answer could not be played: no replies can be made up that lead a task to its end",
    ]


TWO = {"poll": None, "submit": [{"url": "/a"}, {"url": "/b"}]}
PREFIXED = {"signature": SIGNED["signature"] | {"prefix": "sha256="}}
PAGES = {"result": {"url": "/r", "next": "body.n"}}
LINK = {"url": "${response.body.link}"}
EACH = {"argument": "body.e[].c"}


def rate(requests: int, seconds: int) -> dict[str, Json]:
    return {"limits": {"rate": {"requests": requests, "seconds": seconds}}}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"poll": None}, "It asks again with the same request, every"),
        (TWO, "It submits GET https://api.acme.example/a, then GET https://api.acme.example/b."),
        (TWO, "It asks again with GET https://api.acme.example/b,"),
        ({"polling": {"minDelay": 5, "multiplier": 1}}, ", every 5 s, or"),
        ({"polling": {"initialDelay": 30, "multiplier": 1}}, ", every 2 s (after 30, 2, 2, 2, 2, … s), or"),
        ({"polling": {"hints": [{"argument": "body.eta", "unit": "ms"}]}}, "says: body.eta (ms) or Retry-After."),
        ({"polling": {"maxErrors": 1}}, "tried again, at most once in a row."),
        (
            {"submit": HOOKED, "callback": PREFIXED},
            "It may call back: what it signs (hmac-sha256 as sha256=… in X-S, with the key env:K) is believed",
        ),
        (
            {"submit": HOOKED, "callback": PREFIXED},
            "Callbacks do not say when they were signed, so they replace no partial data or outputs; polls do.",
        ),
        (
            {"submit": HOOKED, "callback": {"signature": {"scheme": "stripe", "secret": ["env:K", "env:L"]}}},
            "as v1=… in Stripe-Signature, with the key env:K or env:L, over ${timestamp}.${body}) is believed",
        ),
        (
            {"submit": HOOKED, "callback": {"signature": {"scheme": "slack", "secret": "env:K"}}},
            "A callback that was signed more than 5 min before or after it comes is refused.",
        ),
        ({"submit": HOOKED}, "It may call back: unsigned, so the task is only asked about sooner."),
        ({"polling": {"maxWaitTime": 600}}, "It fails with timeout 10 min after its first submit."),
        (
            rate(20, 3),
            "All workers together begin at most 6.67 attempts per second, up to 1 at once after a quiet time.",
        ),
        (
            rate(2, 60) | PAGES,
            "begin one attempt every 30 s (one may take 2 requests and more pages), up to 1 at once after",
        ),
        ({"limits": {"parallel": 1}}, "All workers together make 1 attempt at once, not more."),
        ({"limits": {"parallel": 4}}, "At a limit, new requests are accepted without asking."),
        ({"limits": {"openJobs": 100}}, "At most 100 jobs are open at once; further tasks wait, not started."),
        ({"limits": {"openJobs": 1}}, "At most 1 job is open at once; further tasks wait, not started."),
        ({"firstAnswer": 0}, "A new request does not wait for that."),
        (only("pending", matcher="status", expected=[404, "3XX"]), "HTTP 404 or 3XX (in the reply to poll) counts"),
        (only("retry", **EACH, matcher="pathAny", expected="BUSY"), "'BUSY' among body.e[].c is tried again."),
        (only("success", **EACH, matcher="pathAll", expected=1), "nothing but 1 in body.e[].c completes."),
        (only("success", argument="body.code", expected=200), "200 in body.code (in the reply to poll) completes."),
        (only("failure", expected="no") | {"error": "body.e"}, "'no' fails with body.e."),
        (only("failure", expected="no") | {"poll": None}, "'no' fails with what the reply says of it."),
        (only("failure", argument="body.a > `1`", expected=True, message="body.m"), "body.a > `1` fails with body.m."),
        (
            only("resubmit", argument="body.x", expected="gone", on=["submit"]),
            "'gone' in body.x (in the reply to submit) begins a new job, at most once.",
        ),
        ({"result": LINK | {"decode": "url"}}, "it keeps the link ${response.body.link} itself."),
        ({"result": LINK | {"optional": True}}, "link}, if there is one."),
        (
            submit(query={"a": "${input.a}", "n": 1}, contentType="text/csv", body="x"),
            "It submits POST https://api.acme.example/jobs?a=${input.a}&n=1 with CSV, and",
        ),
        ({"security": [BASIC, QUERY_KEY]}, "It sends user and password from env:A and the query k from env:B to"),
        ({"security": [OAUTH]}, "A 401 renews the token, once in a row."),
    ],
)
def test_check_finds_words_for_every_part(write: Write, call: Call, changes: Json, sentence: str) -> None:
    assert call("check", write(**changes)) == 0
    assert sentence in call.text
