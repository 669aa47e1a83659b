"""Hides secrets in whatever is shown or written down."""

import base64
import json
from urllib.parse import quote, quote_plus

from shared.codec import Json

MASKED = "MASKED"
"""In place of a secret. It looks the same inside a URL."""


class Mask:
    """What has been learned is replaced wherever it turns up: in texts, URLs, bodies."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}

    def learn(self, secret: str, stand_in: str = MASKED) -> None:
        """Hide this text from now on, in each spelling that it may have on its way, and a password behind a user."""
        encoded = base64.b64encode(secret.encode()).decode()
        spellings = {secret, quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1], encoded}
        self._words |= {spelling: stand_in for spelling in spellings if spelling}
        _, colon, password = secret.partition(":")
        if colon and password:
            self.learn(password, stand_in)

    def text(self, text: str) -> str:
        """The text without secrets."""
        for word in sorted(self._words, key=len, reverse=True):
            text = text.replace(word, self._words[word])
        return text

    def value(self, value: Json) -> Json:
        """A JSON value whose texts hold no secrets."""
        match value:
            case str():
                return self.text(value)
            case int() | float() if str(value) in self._words:
                return self._words[str(value)]
            case dict():
                return {self.text(name): self.value(one) for name, one in value.items()}
            case list():
                return [self.value(one) for one in value]
        return value
