"""Cache-Control and Prefer are read as their RFCs have them; what cannot be read changes nothing."""

from collections.abc import Callable

import pytest

from shared.api.event import ApiCall
from shared.api.preference import LONGEST_AGE_SECONDS, MAX_CHARACTERS, NONE, preferences
from tests.support.api_events import http_call, rest, rest_call

Shape = Callable[..., ApiCall]


@pytest.fixture(params=[rest_call, http_call], ids=["rest", "http"])
def shape(request: pytest.FixtureRequest) -> Shape:
    """Each test that makes its calls with this runs for both shapes."""
    shape: Shape = request.param
    return shape


@pytest.mark.parametrize(
    ("prefer", "wait_seconds", "applied"),
    [
        ("wait=7", 7, "wait=7"), ("Wait=7", 7, "wait=7"), ("wait = 7", 7, "wait=7"), ('wait="7"', 7, "wait=7"),
        ("wait=0", 0, "wait=0"), ("wait=20", 20, "wait=20"), ("wait=21", 20, "wait=20"),
        ("wait=99999999999999999999", 20, "wait=20"), ("respond-async", 0, "respond-async"),
        ("RESPOND-ASYNC", 0, "respond-async"), ("respond-async, wait=7", 7, "wait=7"),
        ("wait=7; x=1, respond-async", 7, "wait=7"), ("return=minimal, wait=7", 7, "wait=7"),
        ('foo="a, wait=3", wait=7', 7, "wait=7"), (r'foo="a\", wait=3", wait=7', 7, "wait=7"),
        ("foo; wait=3", None, None), ("wait=7, wait=3", 7, "wait=7"), ("wait=soon, wait=3", None, None),
        ("wait=soon, respond-async", 0, "respond-async"), ("wait", None, None), ("wait=", None, None),
        ("wait=-1", None, None), ("wait=1.5", None, None), ("wait=٣", None, None), ("wait 7", None, None),
        ("respond-asynchronously", None, None), ('"', None, None), ("=, ;, ,", None, None), ("", None, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["Prefer", "prefer", "pREFER"])
def test_prefer_says_how_long_a_caller_waits_whatever_its_case(
    shape: Shape, name: str, prefer: str, wait_seconds: float | None, applied: str | None
) -> None:
    stated = preferences(shape("POST", "/tasks", None, {name: prefer}))
    assert (stated.wait_seconds, stated.applied) == (wait_seconds, applied)


@pytest.mark.parametrize(
    ("control", "stale_seconds"),
    [
        ("stale-while-revalidate=60", 60), ("Stale-While-Revalidate=60", 60), ('stale-while-revalidate="60"', 60),
        ("max-age=5, stale-while-revalidate=60", 60), ("stale-while-revalidate=60, stale-while-revalidate=30", 30),
        ("stale-while-revalidate=99999999999999", LONGEST_AGE_SECONDS), ("stale-while-revalidate=60, no-cache", 0),
        ('foo="stale-while-revalidate=60"', 0), ('foo="a, stale-while-revalidate=60"', 0),
        ("stale-while-revalidate", 0), ("stale-while-revalidate=-1", 0), ("stale-while-revalidate=1.5", 0),
        ("stale-while-revalidate = 60", 0), ('stale-while-revalidate="60', 0), ("stale-if-error=60", 0), ("", 0),
    ],
)  # fmt: skip
def test_cache_control_says_how_stale_an_answer_may_be(shape: Shape, control: str, stale_seconds: float) -> None:
    assert preferences(shape("GET", "/", None, {"cache-CONTROL": control})).stale_seconds == stale_seconds


def test_a_request_without_such_headers_prefers_nothing(shape: Shape) -> None:
    assert preferences(shape("GET", "/")) == NONE


def test_lines_of_one_header_are_one_list() -> None:
    event = rest("GET", "/")
    event["headers"]["Prefer"] = "respond-async"
    event["multiValueHeaders"]["Prefer"] = ["wait=7", "respond-async"]
    assert preferences(ApiCall.of(event)).wait_seconds == 7


@pytest.mark.parametrize(("length", "wait"), [(MAX_CHARACTERS, 7), (MAX_CHARACTERS + 1, None)])
def test_a_header_is_read_up_to_its_limit(shape: Shape, length: int, wait: int | None) -> None:
    assert preferences(shape("GET", "/", None, {"Prefer": "wait=7".ljust(length)})).wait_seconds == wait


def test_a_header_that_would_take_long_to_read_is_not_read(shape: Shape) -> None:
    for name, value in (("Prefer", "wait=7, a=" + " " * MAX_CHARACTERS), ("Cache-Control", "no-cache, " + '"\\' * 512)):
        assert preferences(shape("GET", "/", None, {name: value})) == NONE
