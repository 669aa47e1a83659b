"""Origins and addresses: what is the same place, and what is no place for a request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import TransportError
from shared.provider.wire.origin import has_origin, is_public, joined, origin_of
from tests.support.asking import fails


@pytest.mark.parametrize(("url", "origin"), [
    ("http://a.example", ("http", "a.example", 80)), ("https://a.example/x?y#z", ("https", "a.example", 443)),
    ("HTTP://A.Example.:8080/", ("http", "a.example", 8080)), ("https://[::1]:8443", ("https", "::1", 8443)),
    ("http://a.example:/", ("http", "a.example", 80)),
])  # fmt: skip
def test_an_origin_is_scheme_host_and_port(url: str, origin: tuple[str, str, int]) -> None:
    assert origin_of(url) == origin
    assert has_origin(url)


@pytest.mark.parametrize("url", [
    "", "/a", "a.example", "//a.example", "ftp://a.example", "ftp://a.example:80", "file:///etc/passwd",
    "javascript:alert(1)", "http://", "http:///a", "http://:80", "http://.", "http://..:80/a", "http://[",
    "http://[::1", "http://[1.2.3.4]x", "http://a.example:x", "http://a.example:65536", "http://a.example:-1",
    "http://user@a.example", "http://user:password@a.example", "http://@a.example", "http://:@a.example",
])  # fmt: skip
def test_what_is_no_plain_http_url_has_none(url: str) -> None:
    with fails("invalid-request"):
        origin_of(url)
    assert not has_origin(url)


def test_a_link_is_read_beside_its_base() -> None:
    assert joined("http://a.example/b/c?d", "../e?f") == "http://a.example/e?f"
    assert joined("http://a.example/b", "https://c.example/") == "https://c.example/"
    with pytest.raises(TransportError, match="not a URL"):
        joined("http://a.example/b", "http://[")


@given(st.text(max_size=30))
def test_any_text_has_an_origin_or_is_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"http://a.example{text}"):
        try:
            joined("http://a.example", url)
            scheme, host, port = origin_of(url)
        except TransportError:
            continue
        assert scheme in ("http", "https")
        assert host
        assert 0 < port < 65536


@pytest.mark.parametrize("address", [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254", "169.254.0.1",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1",
    "::7f00:1", "::ffff:0.0.0.0", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:224.0.0.1",
    "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "2001::1", "2001:db8::1",
    "2002:7f00:1::", "2002:808:808::", "4000::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1",
    "ff02::1", "ff0e::1",
])  # fmt: skip
def test_a_special_address_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1",
    "::ffff:8.8.8.8", "64:ff9b::808:808", "2001:4860:4860::8888", "2606:4700::1111", "2a00::1",
])  # fmt: skip
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)
