"""Links: what goes along to another origin, and what a Link header names."""

from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.provider.wire import link
from shared.provider.wire.link import MAX_LINK_BYTES, MAX_LINKS, abroad, links
from shared.provider.wire.message import Call
from shared.provider.wire.origin import joined

PAGE = "https://a.example/v1/items?page=1"


@pytest.mark.parametrize(("header", "found"), [
    ('<https://a.example/v1/items?page=2>; rel="next"', {"next": "https://a.example/v1/items?page=2"}),
    ("<?page=2>; rel=next", {"next": "https://a.example/v1/items?page=2"}),
    ("<?page=2>;REL=Next", {"next": "https://a.example/v1/items?page=2"}),
    ("</x>; rel=\"last next\"", {"last": "https://a.example/x", "next": "https://a.example/x"}),
    ('</p>; rel="prev", </n>; rel="next"', {"prev": "https://a.example/p", "next": "https://a.example/n"}),
    ('</a>; title="one, <two>; rel=next", </n>; rel="next"', {"next": "https://a.example/n"}),
    (r'</a>; title="a \" b"; rel="next"', {"next": "https://a.example/a"}),
    ("</a,b;c>; rel=next", {"next": "https://a.example/a,b;c"}),
    ("</1>; rel=next, </2>; rel=next", {"next": "https://a.example/1"}),
    ("</1>; rel=next; rel=prev", {"next": "https://a.example/1"}),
    ("</1>; rel=next; anchor=\"/other\"", {}), ("</1>; rel=next; anchor=\"?page=1\"", {"next": "https://a.example/1"}),
    ("</1>", {}), ("</1>; rel", {}), ("", {}), ("next", {}), ("<http://[>; rel=next", {}),
    ("<>; rel=self", {"self": PAGE}),
    (" , </1> ; rel = \"next\" , ", {"next": "https://a.example/1"}),
    ("</1>; hreflang*=UTF-8''de; rel=next", {"next": "https://a.example/1"}),
    ("</grün e>; rel=next", {"next": "https://a.example/grün e"}), ("</50%>; rel=next", {"next": "https://a.example/50%25"}),
])  # fmt: skip
def test_a_link_header_names_urls_by_relation(header: str, found: dict[str, str]) -> None:
    assert links(header, PAGE) == found


@given(st.text(st.sampled_from('<>;,="\\ rel next/?'), max_size=60))
def test_any_text_may_stand_in_a_link_header(header: str) -> None:
    assert all(link.startswith("https://") or ":" in link for link in links(header, PAGE).values())


def test_of_very_many_links_the_first_are_read_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """16,000 of them took an attempt 12 seconds past its deadline."""
    counted = Mock(side_effect=joined)
    monkeypatch.setattr(link, "joined", counted)
    found = links(",".join(f"<{i}>;rel=r{i}" for i in range(16_000)), PAGE)
    assert list(found) == [f"r{i}" for i in range(MAX_LINKS)]
    assert counted.call_count == MAX_LINKS + 1
    assert links(f'</1>; rel=next; title="{"x" * MAX_LINK_BYTES}", </2>; rel=last', PAGE) == {
        "next": "https://a.example/1"
    }


def test_only_what_tells_no_secret_goes_to_another_origin() -> None:
    kept = {"ACCEPT": "text/csv", "Accept-Language": "de", "content-type": "text/csv", "user-agent": "us"}
    left = dict.fromkeys(
        ["Authorization", "Cookie", "X-Api-Key", "api-key", "Idempotency-Key", "Referer", "If-Match"], "k"
    )
    gone = abroad(Call("POST", "https://b.example", {"q": 1}, kept | left, "body"))
    assert (gone.headers, gone.query, gone.body) == (kept, {"q": 1}, "body")
