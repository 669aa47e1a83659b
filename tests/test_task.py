"""A task's identity is normalised where it arrives, so that equal names are one task."""

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


@pytest.mark.parametrize("name", ["a", "a b", "...", "a.b", "Łódź", "日本", "x" * 256, "é" * 128, "e\u0301" * 128])
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
        ("a\u200bb", "not printable"),
        ("a\u00a0b", "not printable"),
        ("\ud800", "not printable"),
    ],
)
def test_any_other_name_is_refused_with_its_field(name: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why) as caught:
        Task.named("example", name)
    assert caught.value.field == "name"


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
