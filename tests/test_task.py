"""A task's identity is normalised where it arrives, so that equal names are one task."""

import sys
import unicodedata
from unittest.mock import patch

import pytest

from shared.errors import BadRequest
from shared.task import MAX_NAME_BYTES, Task, is_provider_name


def test_a_task_is_provider_and_name() -> None:
    assert Task.named("example", "invoice 1") == Task("example", "invoice 1")
    assert Task("example", "a").id == "example/a"


def test_an_id_leads_back_to_its_task_even_where_the_name_has_a_slash() -> None:
    task = Task.named("example", "a/b/c")
    assert Task.from_id(task.id) == task


def test_composed_and_decomposed_letters_are_one_name() -> None:
    assert Task.named("example", "e\u0301tude") == Task.named("example", "\u00e9tude")
    assert Task.named("example", "e\u0301tude").name == "\u00e9tude"


@pytest.mark.parametrize(
    "name",
    ["a", "a b", "...", "a.b", "Łódź", "日本", "x" * 256, "é" * 128, "e\u0301" * 128, "\u0ddd".join("ab") * 51,
     unicodedata.normalize("NFD", "\u0ddd") * 85, " a ", "山田\u3000太郎", "10\u00a0€",
     "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "👨\u200d👩\u200d👧", "❤\ufe0f"],
)  # fmt: skip
def test_a_printable_name_of_up_to_256_bytes_is_taken(name: str) -> None:
    assert Task.named("example", name).name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "empty"),
        (".", "'.' or '..'"),
        ("..", "'.' or '..'"),
        ("x" * 257, f"longer than {MAX_NAME_BYTES} bytes"),
        ("é" * 129, f"longer than {MAX_NAME_BYTES} bytes"),
        ("a\nb", "not printable"),
        ("a\x00", "not printable"),
        ("\x7f", "not printable"),
        ("a\u2028b", "not printable"),
        *(
            (f"a{one}b", "not printable")
            for one in "\u200b\u200e\u202e\u2060\u2066\ufeff\u00ad\ue000\uffff\u2029\x85\U000e0067"
        ),
        ("\ud800", "not printable"),
        *((blank, "nothing but spaces") for blank in (" ", "\u3000", "\u00a0 ", "\u200d", " \u200c\u200d ")),
    ],
)
def test_any_other_name_is_refused_with_its_field(name: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as caught:
        Task.named("example", name)
    assert caught.value.field == "name"


@pytest.mark.parametrize("mark", ["\u0301\u0323", "x", "\ud800", "名"])
def test_a_name_is_refused_by_its_raw_length_before_any_work(mark: str) -> None:
    with patch.object(unicodedata, "normalize") as normalize, pytest.raises(BadRequest, match="longer than"):
        Task.named("example", mark * (769 // len(mark.encode(errors="surrogatepass")) + 1))
    assert not normalize.called


def test_no_name_in_nfc_is_so_short_that_it_would_be_refused_by_its_raw_length() -> None:
    letters = [chr(one) for one in range(sys.maxunicode + 1) if not 0xD800 <= one < 0xE000]
    nfc = [(one, unicodedata.normalize("NFC", one)) for one in letters]
    assert max(len(unicodedata.normalize("NFD", one).encode()) / len(short.encode()) for one, short in nfc) == 3


def test_a_task_whose_name_an_earlier_release_took_is_still_read() -> None:
    assert Task.from_id("example/ ") == Task("example", " ")


@pytest.mark.parametrize("provider", ["", "Example", "../x", "a/b", "a:b", "a{b}", "-a", "a" * 65, "a\n", "é"])
def test_a_provider_name_that_could_not_be_a_key_a_url_and_a_file_is_refused_with_its_field(provider: str) -> None:
    assert not is_provider_name(provider)
    with pytest.raises(BadRequest) as caught:
        Task.named(provider, "a")
    assert caught.value.field == "provider"


@pytest.mark.parametrize("provider", ["example", "a", "0", "a-b_c", "a" * 64])
def test_a_plain_provider_name_is_taken(provider: str) -> None:
    assert is_provider_name(provider)
    assert Task.named(provider, "a").provider == provider
