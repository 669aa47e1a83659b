"""Where the next page of a result is: an expression that finds its URL, or a URL with placeholders."""

from shared.codec import Json
from shared.provider.language.expression import Expression
from shared.provider.language.placeholder import fill_url, placeholders


class NextPage(Expression):
    """Finds the URL of the next page in a reply; no text where there is none. Raises ProviderFileError.

    A URL with placeholders is filled as that of an operation, values percent-encoded, and there is no next page where
    one of them is null, false or empty: `?cursor=${body.cursor}`.
    """

    __slots__ = ("expressions", "is_filled")

    def __init__(self, text: str) -> None:
        self.expressions: tuple[Expression, ...] = tuple(one.expression for one in placeholders(text))
        self.is_filled = bool(self.expressions)
        if self.is_filled:
            self.text = text
            self.references = frozenset().union(*(one.references for one in self.expressions))
        else:
            super().__init__(text)
            self.expressions = (self,)

    def of(self, value: Json) -> Json:
        """The URL. Raises ValueError for a value that leads to another path."""
        if not self.is_filled:
            return super().of(value)
        if any(one.of(value) in (None, "") or one.of(value) is False for one in self.expressions):
            return None
        return fill_url(self.text, value)
