"""A reply as the expressions of a provider file see it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from shared.codec import Json
from shared.provider.credentials.attachment import Attachment
from shared.provider.decode import decode
from shared.provider.language.expression import Expression
from shared.provider.language.operation import Operation
from shared.provider.links import kept
from shared.provider.wire.link import links
from shared.provider.wire.message import Reply

BARE = Attachment()  # what came by itself was attached nothing


@dataclass(frozen=True, slots=True)
class Decoded:
    """A reply as expressions see it, why its body is not what it is declared to be (empty: it is), and its size.

    `refused`: it is a 401 to the credentials. `foreign`: a link has led to it, away from what the file names.
    `linked`: its URL came from another reply.
    """

    status: int
    url: str
    envelope: dict[str, Json]
    undecodable: str
    size: int
    refused: bool = False
    foreign: bool = False
    linked: bool = False

    @property
    def says_nothing(self) -> bool:
        """Whether it is a success that cannot be believed. A 202 may be another kind of body than the data are."""
        is_success = 200 <= self.status <= 299
        return is_success and bool(self.undecodable) and (self.status != 202 or self.envelope["body"] is None)


def enveloped(
    reply: Reply,
    operation: Operation,
    context: dict[str, Json],
    attachment: Attachment = BARE,
    urls: Sequence[Expression] = (),
) -> Decoded:
    """A reply, whether it was asked for or came by itself, as expressions see it: without what was attached.

    Below 400 the operation's outputs are merged into those so far; null never overwrites, nor does an empty text what
    has a value. Those that `urls` read are links, which become absolute.
    """
    body, undecodable = _read(reply, operation)
    if attachment.may_be_in(reply.body, reply.headers.get("content-type", "")):
        body = attachment.hide(body)
    url = attachment.text(reply.url)
    headers = attachment.value(reply.headers)
    envelope = {"statusCode": reply.status, "headers": headers, "body": body, "url": url or None}
    envelope |= {"links": links(headers.get("link", ""), url) if url else {}}
    envelope |= {"input": context["input"], "outputs": context["outputs"]}
    if reply.status < 400:
        found = {name: expression.of(envelope) for name, expression in operation.outputs.items()}
        before = context["outputs"]
        found = {name: value for name, value in found.items() if value != "" or before.get(name) is None}
        outputs = before | kept(found, urls, envelope)
        # a new envelope: an output may hold the old one, and nothing can be stored that holds itself
        envelope = envelope | {"outputs": outputs}
    return Decoded(reply.status, url, envelope, attachment.text(undecodable), len(reply.body))


def _read(reply: Reply, operation: Operation) -> tuple[Json, str]:
    """The body's value, and why it is not what the operation declares; then a 202 is read as it says itself."""
    try:
        return decode(reply, operation.decode), ""
    except ValueError as error:
        body = None
        if reply.status == 202:
            with suppress(ValueError):
                body = decode(reply, "auto")
        return body, str(error) or type(error).__name__
