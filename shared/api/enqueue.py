"""enqueue: a request is answered at once, and its task will be finished later: get, begin, add, attempt, store, settle.

The order of these steps closes every gap: a crash at any point leaves either nothing or a task that ends. Without
DynamoDB nothing is accepted (503); without Redis the request is accepted all the same, and reconcile queues its task.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from shared.api import view
from shared.api.answer import Answer, problem
from shared.api.preference import Preferences
from shared.api.request import TaskRequest
from shared.errors import BadRequest, Conflict, DataUnavailable, ItemUnreadable, NotifyUnavailable, Unavailable
from shared.limits import UNLIMITED
from shared.logs import facts, log
from shared.provider import Provider
from shared.queue import Added, Hold, Place, new_token, without_redis
from shared.record import Record
from shared.store import CALL_SECONDS, Item, digest
from shared.task import Task
from shared.work.keeper import add_of, record_of
from shared.work.parts import Parts
from shared.work.settle import Settlement, report, report_dropped, settle_and_look
from shared.work.turn import Instant, Turn
from shared.work.worker import Worker

ROUNDS = 5  # how often a request that loses the race to begin looks again
RESERVE_SECONDS = 5.0  # of the function's time, to store, settle and answer; CALL_SECONDS more where data may spill


@dataclass(slots=True, eq=False)
class Begun:
    """A generation that a request has begun, or found in progress, and how far it has been served.

    `stale` is the stored item that answers meanwhile, `since` the instant before it was begun. `seconds`: how long the
    provider is waited for, 0: no attempt. `added` is None while Redis has not taken it, and `place` while it has not
    told where it is, after that or after the attempt; `error` is a fault of our own.
    """

    item: Item
    record: Record
    provider: Provider
    prefers: Preferences
    stale: Item | None
    since: Instant
    seconds: float = 0
    added: Added | None = None
    settlement: Settlement | None = None
    place: Place | None = None
    error: Exception | None = None

    @property
    def is_in_progress(self) -> bool:
        """Whether it is another request's, and what Redis knows of it is to be told."""
        return self.added in ("exists", "stale") and not (self.stale or self.settlement or self.error)


@dataclass(frozen=True, slots=True)
class Enqueuer:
    """Serves requests for tasks. `tell` tells a workflow that its task has ended."""

    parts: Parts
    worker: Worker
    tell: Callable[[str, Item], None]

    def answer(self, request: TaskRequest, remaining: Callable[[], float]) -> Answer:
        """The answer to a request; `remaining` tells the seconds that the function has left.

        Raises BadRequest, Conflict, and StoreUnavailable when nothing was accepted.
        """
        begun = self.accept(request)
        return begun if isinstance(begun, Answer) else self.serve([begun], remaining)[0]

    def accept(self, request: TaskRequest, read: Mapping[Task, Item | None] | None = None) -> Answer | Begun:
        """The answer from what is stored, or the generation that was begun or is in progress, for `serve`.

        `read` has items that were read a moment ago: if another request was faster, looking again finds it out. Raises
        as `answer` does.
        """
        task = request.task
        provider = view.provider_of(self.parts, task)
        if request.notify and request.notify.partition(":")[0] not in self.parts.settings.notify:
            raise BadRequest("this deployment does not notify such workflows (NOTIFY)", field="notify")
        for round_ in range(ROUNDS):
            item = read[task] if round_ == 0 and read and task in read else self.parts.mended(task)  # 1. get
            try:
                known = self._known(request, provider, item) if item else None
            except ItemUnreadable as error:  # its data, which are read only now
                self.parts.mend(task, error)
                continue
            if item and known:
                if request.notify is None or self._is_told(request.notify, item):
                    return known
                continue  # it changed meanwhile
            input_ = request.input if request.input is not None else (item.input if item else {})
            group = request.group or (item.group if item else "")
            now, since = self.parts.clock(), self.worker.instant()
            begun = self.parts.store.begin(task, item, input_, now, group=group, notify=request.notify)  # 2. begin
            if begun:
                log.info("begun", extra=facts(begun))
                stale = request.prefers.stale_seconds
                may_answer = item and item.status == "completed" and self._answers(request, provider, item, stale)
                return Begun(begun, record_of(begun), provider, request.prefers, item if may_answer else None, since)
        raise Unavailable("the task changes too fast; try again", field="name")

    def serve(
        self, begun: Sequence[Begun], remaining: Callable[[], float], map_: Callable[..., Iterable[None]] = map
    ) -> list[Answer]:
        """The rest of the steps for many at once: one call per provider and verb, the attempts made by `map_`."""
        token, left = new_token(), remaining()
        ours = [one for one in begun if one.added is None]
        for one in ours:
            one.seconds = self._first_answer_seconds(one, left)
        self._add(ours, token)  # 3. add
        tried = [one for one in ours if one.seconds > 0 and _may_be_attempted(one)]
        list(map_(lambda one: self._attempt(one, token), tried))  # 4. attempt, 5. store
        self._settle([one for one in tried if one.settlement])  # 6. settle
        if all(one.added for one in ours):  # else Redis is away
            self._look([one for one in begun if one.is_in_progress])
        applied = {one: one.prefers.applied for one in ours if one.prefers.applied}
        answers = [self._answer(one) for one in begun]  # 7. answer
        return [  # made anew, a large body is written anew
            replace(answer, preference_applied=applied[one]) if one in applied else answer
            for one, answer in zip(begun, answers, strict=True)
        ]

    def _look(self, begun: Sequence[Begun]) -> None:
        for one, place in zip(begun, view.places_of(self.parts, [one.item for one in begun]), strict=True):
            one.place = place

    def _add(self, begun: Sequence[Begun], token: str) -> None:
        """Put each into Redis, leased where an attempt follows at once."""
        with without_redis(then="reconcile queues the task"):  # once it is away, no other provider is tried
            for (provider, leased), group in _grouped(begun).items():
                replies = self.parts.queue.add_and_look(
                    [add_of(one.item.task, one.record) for one in group],
                    token=token,
                    lease_seconds=self.parts.settings.lease_seconds if leased else 0,
                    limits=provider.rules.limits,
                )
                for one, (added, place) in zip(group, replies, strict=True):
                    one.added, one.place = added, place

    def _attempt(self, one: Begun, token: str) -> None:
        hold = Hold(one.item.task, one.item.generation, token, turn=1)  # with Redis away, too: it may have taken it
        turn = Turn(hold, one.since, self.worker.keeper.monotonic() + one.seconds, inline=True)
        try:
            one.settlement = self.worker.attempt(turn, one.record)
        except Exception as error:  # noqa: BLE001 (the answer reports it)
            one.error = error

    def _settle(self, found: Sequence[Begun]) -> None:
        settled: list[Begun] = []
        with without_redis(then="the task comes back with its lease"):
            for (provider, _), group in _grouped(one for one in found if one.added).items():
                settlements = [one.settlement for one in group if one.settlement]
                for one, place in zip(group, settle_and_look(self.parts.queue, provider, settlements), strict=True):
                    one.place = view.of_item(one.item, place)
                settled += group
        for one in found:
            if one.settlement and one not in settled:
                one.place = None
                report(one.settlement, one.settlement.counts_as)
                report_dropped(one.settlement, "Redis could not be told")

    def _first_answer_seconds(self, one: Begun, left: float) -> float:
        """How long to wait for the provider: as the request prefers, else its file, else the settings; 0: not at all.

        A wait shorter than usual would cut submits off, and those may be sent twice: then there is no attempt.
        """
        settings, wanted = self.parts.settings, one.prefers.wait_seconds
        usual = one.provider.rules.first_answer_seconds(settings.first_answer_seconds)
        seconds = usual if wanted is None else wanted
        if one.stale or (seconds < usual and one.provider.submits(one.record)):
            return 0
        reserve = RESERVE_SECONDS + (CALL_SECONDS if settings.spill_bucket else 0)
        return min(seconds, settings.attempt_seconds, left - reserve)

    def _answer(self, one: Begun) -> Answer:
        try:
            if one.stale:
                return replace(view.stored(self.parts, one.stale, revalidating=True), location=one.item.task)
            if one.settlement:
                return view.learned(self.parts, one.item, one.settlement, one.place)
        except (DataUnavailable, ItemUnreadable) as error:  # its data cannot be read; what was begun goes on
            return view.accepted(self.parts, one.item, one.place) if one.stale else problem(error)
        if one.error:
            return problem(one.error, **facts(one.item))
        if one.is_in_progress:
            return view.accepted(self.parts, one.item, one.place, deduplicated=True)
        return view.accepted(self.parts, one.item, one.place, one.record)

    def _known(self, request: TaskRequest, provider: Provider, item: Item) -> Answer | Begun | None:
        """The answer from what is stored, or what is in progress; None when the next generation is to begin."""
        if item.status == "pending":
            if not _is_same_input(request, item):
                raise Conflict("the task is in progress with another input; cancel it first", field="input")
            since = self.worker.instant()
            return Begun(item, record_of(item), provider, request.prefers, None, since, added="exists")
        return view.stored(self.parts, item, deduplicated=True) if self._answers(request, provider, item) else None

    def _is_told(self, target: str, item: Item) -> bool:
        """Whether a workflow will be told, by the item's end, or has been told of it just now."""
        if item.status == "pending":
            superseded = self.parts.store.notify(item.task, item.generation, target)
            there = superseded.item if superseded else None
            if there and there.status == "pending" and there.generation == item.generation:
                raise Conflict("no more workflows can wait for this task", field="notify")
            return superseded is None
        try:
            self.tell(target, item)
        except NotifyUnavailable as error:
            raise Unavailable("the workflow cannot be notified now; try again", field="notify") from error
        return True

    def _answers(self, request: TaskRequest, provider: Provider, item: Item, stale_seconds: float = 0) -> bool:
        """Whether the request takes what an item that has ended holds, which has been stale for so long at most."""
        rules, most = provider.rules, request.prefers.max_age_seconds
        fresh = {"completed": rules.freshness, "failed": rules.freshness_failed}.get(item.status, 0)
        longest = (fresh if most is None else min(fresh, most)) + stale_seconds
        age_seconds = (self.parts.clock() - (item.completed_at or 0)) / 1000
        return _is_same_input(request, item) and age_seconds < longest


def _is_same_input(request: TaskRequest, item: Item) -> bool:
    return request.input is None or digest(request.input) == item.input_digest


def _grouped(begun: Iterable[Begun]) -> dict[tuple[Provider, bool], list[Begun]]:
    """By provider, and by whether an attempt follows at once."""
    groups: dict[tuple[Provider, bool], list[Begun]] = {}
    for one in begun:
        groups.setdefault((one.provider, one.seconds > 0), []).append(one)
    return groups


def _may_be_attempted(one: Begun) -> bool:
    """Whether the attempt is ours; without Redis it is not known what the limits still allow."""
    return one.added == "created" or (one.added is None and one.provider.rules.limits == UNLIMITED)
