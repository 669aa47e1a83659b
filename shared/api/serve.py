"""An answer to every event: whatever it is and whatever breaks, the function does not."""

from collections.abc import Callable
from typing import Any

from shared.api.answer import Answer, problem
from shared.api.event import ApiCall


def served(event: Any, make: Callable[[ApiCall], Answer]) -> dict[str, Any]:
    """What a function gives API Gateway, in both shapes: the answer to the call, or the problem with it.

    A body is always text.
    """
    base = ""
    try:
        call = ApiCall.of(event)
        base, answer = call.base, answered(call, make)
    except Exception as error:  # noqa: BLE001 (the answer reports it)
        answer = problem(error)
    headers = {"Content-Type": answer.content_type} | answer.headers(base)
    return {"statusCode": answer.status, "headers": headers, "body": answer.text, "isBase64Encoded": False}


def answered(call: ApiCall, make: Callable[[ApiCall], Answer]) -> Answer:
    """The answer, or the problem with it; 304 where the call has an answer that it knows already."""
    try:
        answer = make(call)
    except Exception as error:  # noqa: BLE001 (the answer reports it)
        answer = problem(error)
    return answer.unless_known(call.headers.get("if-none-match", ""))
