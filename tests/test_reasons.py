"""The reasons of outcomes: plain words wherever they are written down."""

from shared.codec import dumps
from shared.reasons import Reason, Trait, having


def test_a_reason_is_its_plain_word_in_json_and_in_text() -> None:
    assert dumps({"reason": Reason.TOO_LARGE}) == '{"reason":"too-large"}'
    assert f"{Reason.TOO_LARGE}" == "too-large"


def test_a_word_read_back_has_the_traits_of_its_reason_and_other_text_has_none() -> None:
    assert "crashed" in having(Trait.KEEPS_JOB)
    assert "HTTP 404" not in having(Trait.KEEPS_JOB)
