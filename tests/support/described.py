"""Holds answers to docs/openapi.json: each has a status, headers and a body that are described for its route."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from local import ROOT
from shared.api import batch, cancel, erase, revive, serve, view
from shared.api.answer import Answer, problem
from shared.api.callback import Receiver
from shared.api.enqueue import Enqueuer
from shared.api.event import ApiCall
from shared.api.wait import Waiter
from shared.logs import log

DESCRIPTION: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
_RESOURCE: Resource[Any] = Resource.from_contents(DESCRIPTION, default_specification=DRAFT202012)
_REGISTRY: Registry[Any] = Registry().with_resource("urn:api", _RESOURCE)


def conform(route: str, status: int, headers: Mapping[str, str], text: str) -> None:
    """Raises AssertionError or ValidationError for an answer that is not described."""
    method, _, path = route.partition(" ")
    answers = DESCRIPTION["paths"].get(path, {}).get(method.lower(), {}).get("responses")
    if answers is None:  # a route that is none
        assert status in (400, 404)
        return
    answer = answers.get(str(status))
    assert answer, f"{route}: {status} is not described"
    told = {name.lower() for name in headers} - {"content-type"}
    described = {name.lower(): one.get("required", False) for name, one in answer["headers"].items()}
    assert {name for name, required in described.items() if required} <= told <= described.keys(), (route, status, told)
    if status == 304:
        assert text == ""
    elif headers["Content-Type"].startswith("text/plain"):
        assert "text/plain" in answer["content"]
    else:
        _validator(route, str(status), headers["Content-Type"]).validate(json.loads(text))


@cache
def _validator(route: str, status: str, kind: str) -> Draft202012Validator:
    method, _, path = route.partition(" ")
    content = DESCRIPTION["paths"][path][method.lower()]["responses"][status]["content"]
    pointer = content[kind]["schema"]["$ref"]
    return Draft202012Validator({"$ref": f"urn:api{pointer}"}, registry=_REGISTRY)


def held(patch: pytest.MonkeyPatch) -> None:
    """From here on every answer is held to its description, of the functions and of the parts behind them."""
    ours = serve.answered

    def answered(call: ApiCall, make: Callable[[ApiCall], Answer]) -> Answer:
        answer = ours(call, make)
        _conforms(call.route, answer)
        return answer

    patch.setattr(serve, "answered", answered)
    for owner, name, routes in [
        (Enqueuer, "answer", ["POST /tasks"]), (batch, "answer", ["POST /tasks/batch"]),
        (erase, "answer", ["DELETE /erase", "DELETE /erase/{provider}/{name}"]),
        (cancel, "answer", ["DELETE /tasks", "DELETE /tasks/{provider}/{name}"]),
        (revive, "answer", ["POST /tasks/revive"]), (view, "status", ["GET /tasks", "GET /tasks/{provider}/{name}"]),
        (Waiter, "answer", ["GET /tasks"]), (Receiver, "receive", ["POST /callbacks/{provider}/{token}"]),
    ]:  # fmt: skip
        patch.setattr(owner, name, _checked(getattr(owner, name), routes))


def _checked(make: Callable[..., Answer], routes: list[str]) -> Callable[..., Answer]:
    def checked(*arguments: Any, **options: Any) -> Answer:
        try:
            answer = make(*arguments, **options)
        except Exception as error:
            with _unlogged():
                told = problem(error)
            for route in routes:
                _conforms(route, told)
            raise
        for route in routes:
            _conforms(route, answer)
        return answer

    return checked


@contextmanager
def _unlogged() -> Iterator[None]:
    """What is only looked at stands in no log."""
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = False


def _conforms(route: str, answer: Answer) -> None:
    if answer.status == 404 and answer.body["field"] == "path":  # of another function's route
        return
    conform(route, answer.status, {"Content-Type": answer.content_type} | answer.headers(), answer.text)
