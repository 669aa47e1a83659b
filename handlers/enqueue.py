"""The HTTP function: every route of the API, REST and HTTP API events alike."""

from collections.abc import Callable
from typing import Any, TypeVar

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import wiring
from shared.api import batch, cancel, request, revive, view
from shared.api.answer import Answer, problem
from shared.errors import NotFound
from shared.provider import callback_url  # noqa: F401 (loaded as the environment starts)
from shared.provider.wire import transport  # noqa: F401 (loaded as the environment starts)
from shared.work import wakeups  # noqa: F401 (loaded as the environment starts)

T = TypeVar("T")

router = Router()  # type: ignore[no-untyped-call]
rest = APIGatewayRestResolver(strip_prefixes=[request.BASE_PATH])
http = APIGatewayHttpResolver(strip_prefixes=[request.BASE_PATH])


@router.get("/")
@router.post("/tasks")
def enqueue() -> Response[str]:
    parse = request.from_query if router.current_event.http_method == "GET" else request.from_body
    return _response(wiring.enqueuer().answer(_read(parse), _remaining))


@router.post("/tasks/batch")
def enqueue_batch() -> Response[str]:
    return _response(batch.answer(wiring.enqueuer_for_threads(), _read(request.from_batch), _remaining))


@router.post("/tasks/revive")
def revive_task() -> Response[str]:
    return _response(revive.answer(wiring.parts(), _read(request.named_in_body)))


@router.get("/tasks")
@router.get("/tasks/.+")
def status() -> Response[str]:
    return _response(view.status(wiring.parts(), _read(request.named_in_url)))


@router.delete("/tasks")
@router.delete("/tasks/.+")
def cancel_task() -> Response[str]:
    return _response(cancel.answer(wiring.parts(), _read(request.named_in_url)))


def _read(parse: Callable[[dict[str, Any], str], T]) -> T:
    return parse(router.current_event.raw_event, wiring.settings().default_provider)


def _remaining() -> float:
    return router.lambda_context.get_remaining_time_in_millis() / 1000


def _response(answer: Answer) -> Response[str]:
    answer = answer.unless_known(event := router.current_event.raw_event)
    return Response(answer.status, answer.content_type, answer.text, answer.headers(event))


def _problem(error: Exception) -> Response[str]:
    return _response(problem(error))


for resolver in (rest, http):
    resolver.include_router(router)
    resolver.exception_handler(Exception)(_problem)
    resolver.not_found(lambda _: _problem(NotFound("there is no such route", field="path")))


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one API Gateway event; every answer's body is text."""
    wiring.logger()  # makes what shared/ logs JSON
    return (http if event.get("version") == "2.0" else rest).resolve(event, context)
