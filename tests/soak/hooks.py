"""What the soak's providers say by themselves: webhooks, signed and forged, lost and late, again and again.

Each is sent until it is answered 200 or 404, as providers do. Which ones there are hangs on seed and key alone.
"""

import hmac
import json
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from random import Random
from typing import Any

from tests.soak.journal import Journal
from tests.soak.plan import HOOK_KEY

SHARES = {"end": 0.85, "news": 0.3, "forgery": 0.4, "at once again": 0.3, "again": 0.3, "earlier": 0.8}
"""Of the jobs, those of which this is sent; the end of the others is lost on its way."""
AGAIN_SECONDS = (1.0, 15.0)
REPEAT_SECONDS = (0.3, 1.5)
MOST_TRIES = 40
ANSWER_SECONDS = 15.0
FORGERIES = ("unsigned", "forged", "guessed")
"""No signature; that of another key; that of the provider, at a URL that was not given away."""


@dataclass(frozen=True, slots=True)
class Hook:
    """One callback: when it is sent, what it says, to which URL, and `about` which job."""

    at: float
    kind: str
    url: str
    says: dict[str, Any]
    about: dict[str, Any]

    def request(self) -> urllib.request.Request:
        body = json.dumps(self.says).encode()
        key = "of a forger" if self.kind == "forged" else HOOK_KEY
        signature = "sha256=" + hmac.digest(key.encode(), body, "sha256").hex()
        headers = {"Content-Type": "application/json"} | ({} if self.kind == "unsigned" else {"X-Signature": signature})
        url = self.url[:-1] + ("B" if self.url.endswith("A") else "A") if self.kind == "guessed" else self.url
        return urllib.request.Request(url, body, headers)


def planned(
    random: Random, url: str, begun: float, told: list[tuple[float, dict[str, Any]]], about: dict[str, Any]
) -> list[Hook]:
    """The callbacks about a job. `told`: what it says when it has begun, and when it is over."""
    (_, news), (over, end) = told
    hooks = []
    draws = {what: random.random() < share for what, share in SHARES.items()}
    if draws["news"]:
        says = news | {"partial": {"name": about["name"], "news": True}}
        hooks.append(Hook(random.uniform(begun, over), "signed", url, says, about))
    if draws["forgery"]:
        status, made_up = random.choice(["done", "refused"]), {"job": "forged", "name": about["name"], "whole": True}
        says = {"status": status, "id": "forged", "data": made_up, "error": "forged"}
        hooks.append(Hook(random.uniform(begun, over + 0.5), random.choice(FORGERIES), url, says, about))
    if draws["end"]:
        at = over + random.uniform(0, 0.2)
        later = [0.0] + [0.01] * draws["at once again"] + [random.uniform(*AGAIN_SECONDS)] * draws["again"]
        hooks += [Hook(at + seconds, "signed", url, end, about) for seconds in later]
    return hooks


class Sender:
    """Sends callbacks when it is time for them, each in a thread, and writes down how they were answered."""

    def __init__(self, journal: Journal, seed: str) -> None:
        self._journal, self._seed = journal, seed
        self._last: dict[str, Hook] = {}

    def job(
        self, key: str, url: str, begun: float, told: list[tuple[float, dict[str, Any]]], about: dict[str, Any]
    ) -> None:
        """A job has begun: send what there will be to say of it, and once more what was said of the one before."""
        random = Random(f"{self._seed} hook {key}")
        hooks = planned(random, url, begun, told, about)
        earlier = self._last.get(about["name"])
        if earlier and random.random() < SHARES["earlier"]:
            hooks.append(Hook(begun + random.uniform(0, 1), "signed", earlier.url, earlier.says, earlier.about))
        self._last[about["name"]] = Hook(told[1][0], "signed", url, told[1][1], about)
        for hook in hooks:
            threading.Thread(target=self._send, args=(hook,), daemon=True).start()

    def _send(self, hook: Hook) -> None:
        time.sleep(max(0, hook.at - time.time()))
        for _ in range(MOST_TRIES):
            begun = time.time()
            code = _code(hook.request())
            said = {"kind": hook.kind, "said": hook.says["status"]}
            self._journal.write("called", begun=begun, code=code, **said, **hook.about)
            if code in (200, 404):
                return
            time.sleep(Random().uniform(*REPEAT_SECONDS))


def _code(request: urllib.request.Request) -> int:
    """The status of the answer; 0 if there was none."""
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except (OSError, HTTPException):
        return 0
