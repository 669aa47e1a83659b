"""Placeholders: values go where they belong and nowhere else, whatever they hold."""

import json
from typing import Any
from unicodedata import normalize
from urllib.parse import parse_qsl, unquote, urlsplit

import jmespath.functions
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.codec import dumps
from shared.errors import ProviderFileError
from shared.outcome import Failed
from shared.provider.language.expression import Expression
from shared.provider.language.placeholder import fill, fill_url, placeholders, text_of
from tests.support.asking import ask, provider, record, rules
from tests.support.servers import Site

CONTEXT: dict[str, Any] = {
    "input": {
        "q": "a b/c?", "n": 5, "x": 1.5, "flag": True, "none": None, "empty": "", "list": [1, "b"],
        "object": {"k": "v"},
    },
    "outputs": {"id": "j-1", "url": "https://b.example/x?y=z#part"},
    "task": {"id": "task-1", "name": "naïve", "provider": "p"}, "response": {"body": {"token": "t"}},
}  # fmt: skip


# --- expressions


@pytest.mark.parametrize(("text", "value", "found"), [
    ("a.b[0]", {"a": {"b": [1]}}, 1), ('headers."x-y"', {"headers": {"x-y": "1"}}, "1"),
    ("a[?b > `1`].c", {"a": [{"b": 2, "c": 3}, {"b": 1, "c": 4}]}, [3]), ("a || 'x'", {}, "x"),
    ("{a: a, b: 'x'}", {"a": 1}, {"a": 1, "b": "x"}), ("to_number(a)", {"a": "5"}, 5), ("a", None, None),
    ("a", [1], None), ('`[1, {"a": null}]`', None, [1, {"a": None}]),
])  # fmt: skip
def test_an_expression_finds_what_jmespath_says(text: str, value: Any, found: Any) -> None:
    assert Expression(text).of(value) == found


@pytest.mark.parametrize(("text", "value"), [
    ("a >= `100`", {"a": "200"}), ("a > b", {"a": 1, "b": "x"}), ("a < b", {"a": [1], "b": 2}), ("length(a)", {}),
    ("length(a)", {"a": 5}), ("keys(a)", {"a": []}), ("sort(a)", {"a": [1, "b"]}),
    ("sort_by(a, &b)", {"a": [{"b": 1}, {"b": "c"}]}), ("max_by(a, &b)", {"a": [{"b": 1}, {}]}),
    ("join(',', a)", {"a": [1]}), ("avg(a)", {"a": ["x"]}), ("a[::0]", {"a": [1]}), ("nonsense(a)", {"a": 1}),
    ("abs(a, a)", {"a": 1}), ("starts_with(a, 'b')", {"a": 1}), ("avg(a)", {"a": [10**400]}),
    ("sum(a)", {"a": [1e308, 1e308]}), ("to_number(a)", {"a": "nan"}), ("to_number(a)", {"a": "1e999"}),
    ("to_number(a)", {"a": "9" * 5000}), ("ceil(to_number(a))", {"a": "inf"}),
    ("map(&to_number(@), a)", {"a": ["1", "inf"]}), ("&a", {"a": 1}), ("[&a]", {"a": 1}),
])  # fmt: skip
def test_an_expression_that_fails_or_finds_no_json_is_null(text: str, value: Any) -> None:
    assert Expression(text).of(value) is None


@pytest.mark.parametrize("text", ["", "a.", "a[", "a b", "{", "&", "a ||", "(" * 2000])
def test_what_is_no_jmespath_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ProviderFileError, match="is not JMESPath"):
        Expression(text)


@pytest.mark.parametrize(("text", "roots"), [
    ("input.a", {"input"}), ("outputs.id || input.id", {"outputs", "input"}), ("input.outputs", {"input"}),
    ("input[?a == outputs].b", {"input"}), ("join('/', [task.name, outputs.id])", {"task", "outputs"}),
    ("input | outputs", {"input"}), ("'outputs'", set()), ("input.*.outputs", {"input"}),
    ("max_by(input, &outputs)", {"input"}),
])  # fmt: skip
def test_an_expression_knows_which_names_it_reads(text: str, roots: set[str]) -> None:
    known = {"input", "outputs", "task", "response"}
    assert {root for root in known if Expression(text).refers_to(root)} == roots


# --- filling


@pytest.mark.parametrize(("text", "filled"), [
    ("${input.n}", 5), ("${input.flag}", True), ("${input.none}", None), ("${input.nothing}", None),
    ("${input.list}", [1, "b"]), ("${input.object}", {"k": "v"}), ("${+input.q}", "a b/c?"), ("n=${input.n}", "n=5"),
    ("${input.flag}!", "true!"), ("<${input.none}>", "<>"), ("${input.list} ${input.object}", '[1,"b"] {"k":"v"}'),
    ("${input.q}${input.n}", "a b/c?5"), ("${input.{a: n}}", {"a": 5}), ("${input.{a: n}.a} ${input.n}", "5 5"),
    ("${input.q", "${input.q"), ("$ {input.q} $${input.n} {}", "$ {input.q} $5 {}"),
    ({"a": "${input.n}", "b": ["${input.x}", {"c": "${task.id}"}]}, {"a": 5, "b": [1.5, {"c": "task-1"}]}),
    ({"${input.n}": 1}, {"${input.n}": 1}), (5, 5), (None, None),
    ({"a": "${input.x}", "gone": "${input.nothing}", "none": "${input.none}"}, {"a": 1.5}),
    ({"deep": [{"a": "${callback.url}", "list": ["${input.none}"]}, "${input.b}", "x"]}, {"deep": [{"list": []}, "x"]}),
    ({"a": None, "b": [None], "c": "${input.{n: none}}"}, {"a": None, "b": [None], "c": {"n": None}}),
])  # fmt: skip
def test_a_lone_placeholder_keeps_its_type_and_elsewhere_text_is_inserted(text: Any, filled: Any) -> None:
    found = fill(text, CONTEXT)
    assert (found, type(found)) == (filled, type(filled))


def test_what_is_filled_in_is_not_filled_again() -> None:
    context = {"input": {"a": "${task.id}", "b": "${input.a}"}, "task": {"id": "task-1"}}
    assert fill("${input.a} ${input.b}", context) == "${task.id} ${input.a}"
    assert fill_url("/${input.a}", context) == "/%24%7Btask.id%7D"


@pytest.mark.parametrize(("text", "url"), [
    ("/x/${input.q}", "/x/a%20b%2Fc%3F"), ("/x/${+input.q}", "/x/a%20b/c?"),
    ("/x?n=${input.n}&f=${input.flag}", "/x?n=5&f=true"), ("/x?l=${input.list}", "/x?l=%5B1%2C%22b%22%5D"),
    ("/${task.name}", "/na%C3%AFve"), ("${outputs.url}", "https://b.example/x?y=z#part"),
    ("${+outputs.url}", "https://b.example/x?y=z#part"), ("${+outputs.url}&a=b", "https://b.example/x?y=z#part&a=b"),
    ("${input.n}", None), ("${input.flag}", None), ("${input.object}", None), ("${input.empty}", None),
    ("/x/${input.empty}", None), ("/x/${input.empty}?q=${input.empty}", None),
    ("/x?q=${input.empty}&r=${input.n}", "/x?q=&r=5"), ("/x/${input.none}", None), ("/x/${input.nothing}/y", None),
    ("${outputs.nothing}", None), ("/plain/../path", "/plain/../path"), ("../${outputs.id}", "../j-1"),
])  # fmt: skip
def test_values_in_a_url_are_encoded_unless_reserved_or_the_whole_of_it(text: str, url: str | None) -> None:
    assert fill_url(text, CONTEXT) == url


@pytest.mark.parametrize("value", [".", "..", ".. ", " .", "\uff0e\uff0e", "\u2025", "..\u3000"])
@pytest.mark.parametrize(
    "text", ["/jobs/${input.v}", "/jobs/${input.v}/x", "${input.v}/x", "/jobs/${input.v}?a=b", "/a/../${+input.v}#c"]
)
def test_a_value_cannot_climb_out_of_its_path(text: str, value: str) -> None:
    with pytest.raises(ValueError, match="another path"):
        fill_url(text, {"input": {"v": value}})


@pytest.mark.parametrize("value", ["..", "%2e%2e/%2E%2E/admin", ".%2e/admin", "a/%2e", "%2E./x", "%2e%2e?a=b"])
def test_no_spelling_of_dots_climbs_where_reserved_characters_are_kept(value: str) -> None:
    with pytest.raises(ValueError, match="another path"):
        fill_url("/v1/r/${+input.v}", {"input": {"v": value}})


@pytest.mark.parametrize("value", [
    "..;?q=1", "..;/admin", "..%2fadmin", "..%252Fadmin", "a/%252e%252e/admin", "%2e%2e", ".", "..\\admin", "a\\b",
    "a%5cb", "x;v=1", "x%3bv=1", "x%00", "x\n", "x%0d%0aA:b", "\x7f", "/admin", "a//b", "a%2f/b", "%2fadmin",
    "..%3fx", "..#x", "..%20", " ..", ".. /admin", "a/.. .", "...", "\uff0e\uff0e/admin", "%ef%bc%8e\uff0e", "\u2025",
    "..\uff0fadmin", "..\u3000", "%c0%ae%c0%ae/admin", "%25c0%ae", "%e0%80%ae.", "%F0%80%80%AE",
    "%u002e%u002E", "%25u002e.",
])  # fmt: skip
@pytest.mark.parametrize("text", ["/v1/tenants/acme/${+input.v}", "/v1/t/${+input.v}?a=b", "/v1/${+input.v}/b"])
def test_a_value_with_reserved_characters_leads_out_of_no_path(text: str, value: str) -> None:
    with pytest.raises(ValueError, match="another path"):
        fill_url(text, {"input": {"v": value}})


@pytest.mark.parametrize("value", ["a..", "..a", "a. ", "caf%E9", "%c0A", "À®", "\uff0ea", "%E4%B8%AD", "100%", "é/…a"])
def test_names_with_dots_spaces_and_other_letters_stay(value: str) -> None:
    assert fill_url("/v1/${+input.v}/x", {"input": {"v": value}})
    assert fill_url("/v1/${input.v}/x", {"input": {"v": value}})


@pytest.mark.parametrize(("text", "value"), [
    ("/v1/${+input.v}/export", "users?x="), ("/v1/${+input.v}/export", "users#"), ("/v1/${+input.v}?a=b", "x?c=d"),
    ("/v1?a=${+input.v}&sig=1", "x#"), ("/v1/a/${+input.v}/b", "x/"),
])  # fmt: skip
def test_a_value_ends_nothing_that_goes_on(text: str, value: str) -> None:
    with pytest.raises(ValueError, match="another path"):
        fill_url(text, {"input": {"v": value}})


@pytest.mark.parametrize(("text", "value", "url"), [
    ("/v1/${+input.v}", "projects/p/jobs/7", "/v1/projects/p/jobs/7"), ("/v1/${+input.v}", "a?q=1#x", "/v1/a?q=1#x"),
    ("/v1/${+input.v}:cancel", "jobs/7", "/v1/jobs/7:cancel"), ("/p/${+input.v}", "g%2Fp/x", "/p/g%2Fp/x"),
    ("/v1/${+input.v}", "a/", "/v1/a/"), ("/x?u=${+input.v}", "http://a//b/../c;d", "/x?u=http://a//b/../c;d"),
    ("${+input.v}/x", "http://a.example/b//../c;d", "http://a.example/b//../c;d/x"), ("/a//${+input.v}", "b", "/a//b"),
    ("/scan/${input.v}", "http://a/b;c\\", "/scan/http%3A%2F%2Fa%2Fb%3Bc%5C"),
])  # fmt: skip
def test_a_value_with_reserved_characters_may_go_on_within_its_place(text: str, value: str, url: str) -> None:
    assert fill_url(text, {"input": {"v": value}}) == url


@pytest.mark.parametrize("value", ["...", "..a", "a..", "a/../b", ". .", "%2e%2e"])
def test_a_value_that_only_looks_like_climbing_is_encoded(value: str) -> None:
    url = fill_url("/jobs/${input.v}", {"input": {"v": value}})
    assert url is not None
    assert unquote(url) == f"/jobs/{value}"
    assert url.count("/") == 2


@pytest.mark.parametrize("text", ["/x/${input.v}", "/x/${+input.v}"])
def test_text_that_utf8_cannot_carry_does_not_fit_into_a_url(text: str) -> None:
    with pytest.raises(ValueError, match="surrogates"):
        fill_url(text, {"input": {"v": "\ud800"}})


def test_placeholders_are_found_wherever_they_stand() -> None:
    text = {"a": "x${input.a}y${+outputs.b}", "b": [1, None, ["${task.c}"]], "c": {"d": "${response.{e: e}}"}}
    found = [(one.expression.text, one.reserved) for one in placeholders(text)]
    assert found == [("input.a", False), ("outputs.b", True), ("task.c", False), ("response.{e: e}", False)]


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), ("x", "x"), (5, "5"), (True, "true"), (1.5, "1.5"), ([1], "[1]"), ({}, "{}")]
)
def test_a_value_as_text_is_json_unless_it_is_text(value: Any, text: str) -> None:
    assert text_of(value) == text


# --- arbitrary values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=6,
)
NASTY = st.text(st.sampled_from("a/\\.?#&=%@:;\r\n\t \x00\x7f\u2028äé€{}$\ud800'\"<"), max_size=12)


@settings(deadline=None)
@given(NASTY)
def test_any_value_in_a_url_stays_one_segment_one_parameter_and_on_its_host(value: str) -> None:
    context = {"input": {"v": value}}
    try:
        url = fill_url("https://a.example/jobs/${input.v}/x?q=${input.v}&r=1", context)
        assert (url is None) == (value == "")
    except ValueError:
        assert normalize("NFKC", value).strip() in (".", "..") or "\ud800" in value
        return
    if url is None:
        return
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "a.example", "")
    assert [unquote(segment) for segment in parts.path.split("/")] == ["", "jobs", value, "x"]
    assert parse_qsl(parts.query, keep_blank_values=True) == [("q", value), ("r", "1")]
    assert str(url).isascii()
    assert str(url).isprintable()


@settings(deadline=None)
@given(JSON)
def test_any_value_in_a_body_comes_out_of_it_again(value: Any) -> None:
    filled = fill({"lone": "${input.v}", "deep": [{"v": "${input.v}"}]}, {"input": {"v": value}})
    held = {} if value is None else {"v": value}
    assert json.loads(dumps(filled)) == {**({} if value is None else {"lone": value}), "deep": [held]}


EXPRESSIONS = st.text(st.sampled_from("abcinput.outputs[]*?:|&!@`'\"(){},<>=0123456789 "), max_size=20)


@pytest.mark.filterwarnings("ignore:deprecated string literal syntax:PendingDeprecationWarning")
@settings(deadline=None)
@given(EXPRESSIONS, JSON)
def test_any_expression_is_refused_or_finds_json(text: str, value: Any) -> None:
    try:
        expression = Expression(text)
    except ProviderFileError:
        return
    dumps(expression.of({"input": value, "outputs": {"a": value}, "a": value, "b": [value]}))
    dumps(expression.of(value))


FUNCTIONS = sorted(jmespath.functions.Functions.FUNCTION_TABLE)


@settings(deadline=None)
@given(
    st.sampled_from(FUNCTIONS),
    st.lists(st.sampled_from(["a", "&a", "@", "b", "`0`", "'x'", "b[::2]"]), max_size=3),
    JSON,
)
def test_any_function_over_anything_finds_json(name: str, arguments: list[str], value: Any) -> None:
    expression = Expression(f"{name}({', '.join(arguments)})")
    json.dumps(expression.of({"a": value, "b": [value, value], "c": 0}), allow_nan=False)


@settings(deadline=None, max_examples=50)
@given(NASTY | JSON)
def test_any_value_in_a_request_is_sent_where_it_belongs_or_fails_the_task(value: Any) -> None:
    with Site() as site:
        submit = {
            "method": "POST", "url": "/jobs", "query": {"q": "${input.v}"},
            "headers": {"X-V": "${input.v}", "X-Last": "1"}, "body": {"v": "${input.v}"},
        }  # fmt: skip
        found = ask(provider(rules(site.url, submit=submit)), record(input={"v": value}))
        if not site.calls:
            assert isinstance(found.outcome, Failed)
            assert found.outcome.reason == "invalid-request"
            return
        [seen] = site.calls
        known = {"Host", "User-Agent", "Accept-Encoding", "Accept", "Connection", "Content-Type", "Content-Length"}
        assert set(seen.headers) - known <= {"X-V", "X-Last"}
        assert seen.headers["X-Last"] == "1"
        assert (seen.method, seen.path) == ("POST", "/jobs")
        assert json.loads(seen.body) == ({} if value is None else {"v": value})
