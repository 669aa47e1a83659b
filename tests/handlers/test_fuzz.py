"""Whatever is asked, the functions answer: a few hundred of what `python -m tests.handlers.fuzz` asks."""

from typing import Any
from unittest.mock import patch

import pytest

from tests.api.test_event import ODD
from tests.handlers.fuzz import FUNCTIONS, ask, functions
from tests.support.api_events import http, rest


def test_every_event_is_answered_and_none_with_5xx(monkeypatch: pytest.MonkeyPatch) -> None:
    made = functions(monkeypatch)
    ask(made, 300)
    assert made.asked >= 300


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_api_gateway_never_sends_is_400_of_every_function(monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    made = functions(monkeypatch)
    for event in ODD:
        assert made.handlers[function](event, None)["statusCode"] == 400


@pytest.mark.parametrize("shape", [rest, http])
def test_a_name_of_64_kilobytes_is_never_normalised(monkeypatch: pytest.MonkeyPatch, shape: Any) -> None:
    made, mark = functions(monkeypatch), "\u0301\u0323" * 16_000
    with patch("unicodedata.normalize") as normalize:
        made.ask("enqueue", shape("POST", "/tasks", {"name": mark[:10_000]}))
        made.ask("enqueue", shape("POST", "/tasks/batch", {"tasks": [{"name": mark}] * 5}))
    assert not normalize.called
