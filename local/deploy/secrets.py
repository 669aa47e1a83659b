"""Checks that secrets can be read, by the deployer's own credentials and the code that reads them in the functions."""

from collections.abc import Callable, Iterable, Iterator

from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from local.deploy.finding import Finding, fault, not_checked, ok
from shared import aws
from shared.errors import SecretUnavailable

Read = Callable[[str], str]
_NOT_OURS = (
    "AccessDenied", "ExpiredToken", "InvalidClientTokenId", "InvalidSignature", "SignatureDoesNot", "UnrecognizedClient"
)  # fmt: skip
"""How a refusal begins that is about who asks, not about the secret."""


def has_credentials() -> bool:
    """Whether AWS credentials are to be had here."""
    try:
        return get_session().get_credentials() is not None
    except BotoCoreError:
        return False


def read_now(reference: str) -> str:
    """The value, read anew. Raises SecretUnavailable."""
    return aws.secret(reference, fresh=True)


def findings(references: Iterable[str], read: Read = read_now) -> Iterator[Finding]:
    """Whether each of these can be read; a value is neither shown nor kept."""
    for reference in dict.fromkeys(references):
        yield reading(reference, read)[1]


def reading(reference: str, read: Read = read_now) -> tuple[str | None, Finding]:
    """The value where it can be read, and what is to be said of that."""
    if reference.startswith("env:"):
        return None, not_checked(reference, "a variable of the functions")
    try:
        return read(reference), ok(reference, "can be read")
    except SecretUnavailable as error:
        return None, _unread(reference, error)


def _unread(reference: str, error: SecretUnavailable) -> Finding:
    """A fault only where it is the secret's: not what comes of credentials or the network here."""
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ClientError):
            code = cause.response.get("Error", {}).get("Code", "")
            if code.startswith(_NOT_OURS):
                return not_checked(reference, f"your own credentials may not read it ({code})")
            return fault(reference, f"cannot be read: {code}")
    for cause in causes:
        if isinstance(cause, BotoCoreError):
            return not_checked(reference, f"no way to AWS from here ({type(cause).__name__})")
    return fault(reference, f"cannot be read: {str(error).removeprefix(reference + ': ')}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause := (cause.__cause__ or cause.__context__) if cause else None:
        yield cause
