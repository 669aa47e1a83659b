"""The HTTP function: every route of the API, REST and HTTP API events alike."""

import re
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, APIGatewayRestResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Router
from aws_lambda_powertools.utilities.typing import LambdaContext

from shared import request, wiring
from shared.answer import Answer, problem
from shared.errors import NotFound, Problem, StoreUnavailable

BEFORE_ROUTE = re.compile(r"^(?!/tasks(?:/|$))(?:/[^/]+)+?(?=/tasks(?:/|$)|/?$)")
"""A base path: what may stand before the routes when an API is mapped into a custom domain."""

router = Router()  # type: ignore[no-untyped-call]
rest = APIGatewayRestResolver(strip_prefixes=[BEFORE_ROUTE])
http = APIGatewayHttpResolver(strip_prefixes=[BEFORE_ROUTE])


@router.get("/")
def get_by_task_name() -> Response[str]:
    return _response(wiring.enqueuer().answer(request.from_query(_event(), _default()), _remaining))


@router.post("/tasks")
def post_task() -> Response[str]:
    return _response(wiring.enqueuer().answer(request.from_body(_event(), _default()), _remaining))


@router.post("/tasks/revive")
def revive() -> Response[str]:
    return _response(wiring.reviver().revive(request.named_in_body(_event(), _default())))


@router.get("/tasks")
@router.get("/tasks/.+")
def status() -> Response[str]:
    return _response(wiring.viewer().status(request.named_in_url(_event(), _default())))


@router.delete("/tasks")
@router.delete("/tasks/.+")
def cancel() -> Response[str]:
    return _response(wiring.canceller().cancel(request.named_in_url(_event(), _default())))


def _event() -> dict[str, Any]:
    return router.current_event.raw_event


def _default() -> str:
    return wiring.settings().default_provider


def _remaining() -> float:
    return router.lambda_context.get_remaining_time_in_millis() / 1000


def _response(answer: Answer) -> Response[str]:
    return Response(answer.status, answer.content_type, answer.text, answer.headers(_event()))


def _problem(error: Problem | StoreUnavailable) -> Response[str]:
    return _response(problem(error))


def _no_route(_: Exception) -> Response[str]:
    return _problem(NotFound("there is no such route", field="path"))


for resolver in (rest, http):
    resolver.include_router(router)
    resolver.exception_handler([Problem, StoreUnavailable])(_problem)
    resolver.not_found(_no_route)


def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Answer one API Gateway event; every answer's body is text."""
    resolver = http if event.get("version") == "2.0" else rest
    return resolver.resolve(event, context)
