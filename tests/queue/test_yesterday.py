"""Two releases on one queue: a deploy changes functions one by one, and may be taken back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from shared.limits import UNLIMITED, Limits
from shared.queue import Hold, Which, new_token
from tests.queue.yesterday import Taken, Yesterday
from tests.support.desk import LEASE_SECONDS, Desk, task
from tests.support.keys import PROVIDER
from tests.support.redis_servers import SERVERS

LEASE_MS = round(LEASE_SECONDS * 1000)
EVERY_CLAIM: tuple[Which, ...] = ("ordinary", "once", "often")

ON_SERVERS = pytest.mark.parametrize("redis_kind", SERVERS, indirect=True)

pytestmark = pytest.mark.junk  # what a release does not know is put right by the next claim or `mend`


@pytest.fixture
def yesterday(redis_client: Any) -> Yesterday:
    return Yesterday(redis_client, PROVIDER)


def taken_by_today(desk: Desk, **how: Any) -> list[Hold]:
    """All that is due, as ticks would take it."""
    found: list[Hold] = []
    for which in EVERY_CLAIM:
        for _ in range(60):
            claimed = desk.claim(which=which, token=new_token(), **how)
            found += [one.hold for one in claimed.tasks]
            if not claimed.tasks and claimed.wait_seconds != 0:
                break
        else:
            raise AssertionError("claims went on without an end")
    return found


def taken_by_yesterday(yesterday: Yesterday) -> list[Taken]:
    """All that is due, as its ticks would take it."""
    found: list[Taken] = []
    for suspect in (False, True):
        while taken := yesterday.claim(token=new_token(), lease_ms=LEASE_MS, suspect=suspect):
            found += taken
    return found


@ON_SERVERS
@pytest.mark.promise("ends", "two releases can work on one queue while a deploy goes on, or is taken back")
def test_today_takes_all_that_yesterday_left_and_its_workers_settle_nothing_twice(
    desk: Desk, yesterday: Yesterday
) -> None:
    yesterday.add("abc", 5, token="t")
    yesterday.add("de", 5, token="t", group="A", has_job=True, limits=Limits(open_jobs=9))
    yesterday.add("f", 5, token="t", lease_ms=1000)
    yesterday.add("g", 5, token="u", lease_ms=LEASE_MS)
    yesterday.add("h", 5, token="t", delay_ms=5000)
    desk.rewind(2)
    held = [Taken("f", 5, "t"), Taken("g", 5, "u")]
    holds = taken_by_today(desk)
    assert sorted((hold.task.name, hold.generation) for hold in holds) == [(name, 5) for name in "abcdef"]
    assert [yesterday.settle("release", one) for one in held] == [False, True]
    assert [hold.task.name for hold in taken_by_today(desk)] == ["g"]
    desk.rewind(5)
    assert [hold.task.name for hold in taken_by_today(desk)] == ["h"]
    desk.settle("completed", *holds)
    desk.queue.mend(PROVIDER)
    assert desk.leaks() == []


@ON_SERVERS
@pytest.mark.promise("ends", "two releases can work on one queue while a deploy goes on, or is taken back")
def test_yesterday_takes_all_that_today_left_and_its_workers_settle_nothing_twice(
    desk: Desk, yesterday: Yesterday
) -> None:
    token = new_token()
    desk.put("abc", 5, token=token)
    desk.put("de", 5, token=token, group="A", has_job=True, limits=Limits(open_jobs=9))
    desk.put("f", 5, token=token, turn=3, came_back=True)
    desk.put("gh", 5, token=token, lease_seconds=1)
    desk.settle("waiting", Hold(task("g"), 5, token), delay=0)
    desk.rewind(2)
    taken = taken_by_yesterday(yesterday)
    assert sorted(one[:2] for one in taken) == [(name, 5) for name in "abcdefgh"]
    assert desk.settle("completed", Hold(task("h"), 5, token)) == [False]
    assert all(yesterday.settle("complete", one) for one in taken)
    assert {*desk.state()} == set()
    desk.queue.mend(PROVIDER)
    assert desk.leaks() == []


@ON_SERVERS
@pytest.mark.parametrize("how", [{}, {"lease_seconds": 30}, {"due_seconds": 60}, {"dead": True}, {"came_back": 1}])
def test_each_replaces_what_the_other_has_of_a_lower_generation(desk: Desk, yesterday: Yesterday, how: Any) -> None:
    desk.seed("a", generation=3, group="A", **how)
    assert yesterday.add("a", 4, token="y") == ["created"]
    assert desk.add("a", 4, token="other") == "exists"
    assert desk.add("a", 5, token="today") == "created"
    assert yesterday.add("a", 5, token="y") == ["exists"]
    assert yesterday.add("a", 4, token="y") == ["stale"]
    assert [hold.generation for hold in taken_by_today(desk)] == [5]


@ON_SERVERS
@pytest.mark.parametrize("becomes", ["buried", "forgotten"])
def test_what_one_release_has_ended_in_process_stops_neither(desk: Desk, yesterday: Yesterday, becomes: Any) -> None:
    for name in "ab":
        desk.add(name, token=f"token {name}", lease_seconds=LEASE_SECONDS)
    yesterday.add("c", 1, token="y", lease_ms=LEASE_MS)
    assert yesterday.end("a", 1, becomes)
    assert desk.end(becomes, "c") == [True]
    assert desk.settle("waiting", Hold(task("a"), 1, "token a"), delay=0, record="r") == [True]  # its item says more
    assert not yesterday.settle("release", Taken("c", 1, "y"))
    desk.rewind(LEASE_SECONDS)
    assert sorted(hold.task.name for hold in taken_by_today(desk)) == ["a", "b"]
    assert desk.state().get("c") == (("dead", 1) if becomes == "buried" else None)


@dataclass
class Known:
    """A task that must be handed out in the end, unless it `may_end`; who holds it, and until when."""

    generation: int
    may_end: bool = False
    token: str = ""
    lease_end: float = 0


class Deploy(RuleBasedStateMachine):
    """Both releases work on one queue in any order; at the end one of them is alone."""

    def __init__(self, desk: Desk, yesterday: Yesterday) -> None:
        super().__init__()
        self.desk, self.yesterday = desk, yesterday
        self.known: dict[str, Known] = {}
        self.holds: list[tuple[bool, Taken]] = []  # whose: today's, else yesterday's
        self.now = 0.0

    is_today = st.booleans()
    name = st.sampled_from("abcdef")
    limits = st.sampled_from([UNLIMITED, UNLIMITED, Limits(open_jobs=2)])

    def is_held(self, name: str) -> bool:
        known = self.known.get(name)
        return bool(known and known.token and known.lease_end > self.now)

    @rule(
        is_today=is_today, name=name, newer=st.integers(0, 1), delay=st.sampled_from([0, 0, 50]), leased=st.booleans(),
        group=st.sampled_from(["", "A", "B"]), has_job=st.booleans(), limits=limits,
    )  # fmt: skip
    def add(
        self, is_today: bool, name: str, newer: int, delay: int, leased: bool, group: str, has_job: bool, limits: Limits
    ) -> None:
        token, known = new_token(), self.known.get(name)
        generation = (known.generation if known else 1) + newer
        how: dict[str, Any] = {"token": token, "group": group, "has_job": has_job, "limits": limits}
        if is_today:
            answer = self.desk.put([name], generation, delay=delay, lease_seconds=LEASE_SECONDS * leased, **how)
        else:
            answer = self.yesterday.add([name], generation, delay_ms=delay * 1000, lease_ms=LEASE_MS * leased, **how)
        place = self.desk.state().get(name)
        assert place, "nothing is there after an add"
        assert place[1] >= 1
        if answer[0] in ("created", "waiting"):
            is_leased = leased and answer == ["created"]
            self.known[name] = Known(generation, False, token if is_leased else "", self.now + LEASE_SECONDS)
            if is_leased:
                self.holds.append((is_today, Taken(name, generation, token)))

    @rule(is_today=is_today, limit=st.integers(1, 4), which=st.sampled_from(["ordinary", "ordinary", "once", "often"]),
          limits=limits)  # fmt: skip
    def claim(self, is_today: bool, limit: int, which: Which, limits: Limits) -> None:
        token = new_token()
        if is_today:
            claimed = self.desk.claim(limits, limit=limit, which=which, token=token)
            taken = [Taken(one.hold.task.name, one.hold.generation, token) for one in claimed.tasks]
        else:
            how: dict[str, Any] = {"limit": limit, "suspect": which != "ordinary", "limits": limits}
            taken = self.yesterday.claim(token=token, lease_ms=LEASE_MS, **how)
        self.took(is_today, taken)

    def took(self, is_today: bool, taken: list[Taken]) -> None:
        assert len({one.name for one in taken}) == len(taken)
        for one in taken:
            assert not self.is_held(one.name), "two have it"
            known = self.known.get(one.name)
            assert known, "it had ended"
            assert one.generation == known.generation
            known.token, known.lease_end = one.token, self.now + LEASE_SECONDS
            self.holds.append((is_today, one))

    @precondition(lambda self: self.holds)
    @rule(at=st.integers(0, 20), becomes=st.sampled_from(["complete", "release", "release", "release", "bury"]),
          delay=st.sampled_from([0, 50]), has_job=st.booleans(), attempted=st.booleans())  # fmt: skip
    def settle(self, at: int, becomes: str, delay: int, has_job: bool, attempted: bool) -> None:
        is_today, one = self.holds.pop(at % len(self.holds))
        known = self.known.get(one.name)
        if is_today:
            words: dict[str, Any] = {"complete": "completed", "release": "waiting", "bury": "buried"}
            hold = Hold(task(one.name), one.generation, one.token)
            (done,) = self.desk.settle(words[becomes], hold, delay=delay, has_job=has_job, attempted=attempted)
        else:
            done = self.yesterday.settle(becomes, one, delay_ms=delay * 1000, has_job=has_job)
        if known and known.token == one.token:
            assert done or known.may_end or known.lease_end <= self.now
            if done and becomes == "release":
                known.token = ""
            elif done or (known.may_end and one.name not in self.desk.parts()["queue"]):
                del self.known[one.name]
        else:
            assert not done

    @rule(is_today=is_today, name=name, becomes=st.sampled_from(["buried", "forgotten", "dropped"]))
    def end(self, is_today: bool, name: str, becomes: str) -> None:
        known = self.known.get(name)
        generation = known.generation if known else 9
        if is_today:
            self.desk.end(becomes, name, generation=generation)
        elif becomes == "dropped":
            self.yesterday.forget(name, generation)
        else:
            self.yesterday.end(name, generation, becomes)
        if known and name in self.desk.parts()["queue"]:
            known.may_end = True
        else:
            self.known.pop(name, None)

    @rule(is_today=is_today, name=name)
    def hasten(self, is_today: bool, name: str) -> None:
        generation = self.known[name].generation if name in self.known else 1
        if is_today:
            self.desk.queue.hasten([(task(name), generation)])
        else:
            self.yesterday.hasten(name, generation)

    @rule(is_today=is_today)
    def reconcile(self, is_today: bool) -> None:
        """What is nowhere is asked about and ended, by either; none of it may be a task that lives."""
        strays = {one.name for one in self.desk.queue.mend(PROVIDER)} if is_today else self.yesterday.strays()
        assert strays == set()
        if is_today:
            assert self.desk.leaks() == []

    @rule(seconds=st.sampled_from([1.0, 51.0, LEASE_SECONDS + 1]))
    def time_passes(self, seconds: float) -> None:
        self.desk.rewind(seconds)
        self.now += seconds

    @invariant()
    def no_task_is_lost_and_each_state_is_read_by_both(self) -> None:
        parts = self.desk.parts()
        for name, known in self.known.items():
            assert known.may_end or name in parts["queue"], f"{name} is lost"
            if name in parts["queue"]:
                assert parts["state"][name].startswith(f"{known.generation}:")
                assert parts["state"][name].count(":") == 2
        self.known = {name: known for name, known in self.known.items() if name in parts["queue"]}

    def teardown(self) -> None:
        """All that is left is due, and each release alone takes it all."""
        for is_today in (len(self.holds) % 2 == 0, len(self.holds) % 2 == 1):
            self.time_passes(2 * LEASE_SECONDS)
            every = {name for name, known in self.known.items() if not known.may_end}
            if is_today:
                taken = {hold.task.name for hold in taken_by_today(self.desk)}
            else:
                taken = {one.name for one in taken_by_yesterday(self.yesterday)}
            assert every <= taken
            assert taken <= self.known.keys()


def walk(desk: Desk, yesterday: Yesterday, clear: Callable[[], object], **how: Any) -> None:
    def deploy() -> Deploy:
        clear()
        return Deploy(desk, yesterday)

    options = settings(derandomize=True, database=None, deadline=None, **how)
    run_state_machine_as_test(cast(Any, deploy), settings=options)


@pytest.mark.parametrize("redis_kind", ["fakeredis"], indirect=True)
def test_whatever_two_releases_do_on_one_queue_no_task_is_lost_doubled_or_stuck(
    desk: Desk, yesterday: Yesterday, redis_client: Any
) -> None:
    walk(desk, yesterday, redis_client.flushall, max_examples=80, stateful_step_count=40)
