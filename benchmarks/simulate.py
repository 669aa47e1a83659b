"""What so many tasks a day cost on AWS, and what gives way first: `python -m benchmarks.simulate`.

Arithmetic over what was counted in the code (COUNTED; tests hold it to the handlers), simulated in virtual time
(`benchmarks.lateness`; a test holds `run_seconds` and the others to it), measured (`benchmarks.shard`), and assumed.
`--write` writes the tables of docs/scale.md.
"""

import argparse
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.lateness import ATTEMPT_SECONDS, POLL_SECONDS, TRIP_SECONDS, WARM_SECONDS
from benchmarks.prices import PRICES, READ, REGION, Price, dollars
from local import ROOT
from local.docs import table
from local.sam_template import template
from shared.settings import Settings
from shared.store.item import SHARDS
from shared.work.reconcile import STOP_SECONDS
from shared.work.tick import AT_HAND_SECONDS

PAGE = ROOT / "docs" / "scale.md"
DAY, MONTH = 86_400, 730 * 3600  # seconds
EVERY_SECONDS = 300  # reconcile
TASKS = (10**4, 10**6, 10**8)  # a day
PROVIDERS = (1, 40, 500)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of a task asks for: calls to Redis, reads and writes of the table, writes of its index."""

    redis: int
    reads: int
    writes: int
    index: int


# Counted in the code.
COUNTED = {
    "request": Step(redis=2, reads=1, writes=2, index=3),  # a new task, that its provider begins
    "unchanged": Step(redis=2, reads=1, writes=0, index=0),  # a poll that brings nothing new
    "news": Step(redis=2, reads=0, writes=1, index=2),  # a poll that brings outputs or partial data
    "end": Step(redis=2, reads=0, writes=1, index=1),  # the poll that completes it
}
RECONCILE_CALLS = 16  # to Redis, for a provider without tasks
RUN_CALLS = 2  # of a run, for each provider that it serves: a claim that finds nothing, and it leaves
TICK_BYTES, NAMED_BYTES, METRICS_BYTES, END_BYTES = 140, 45, 300, 190  # logged by a run, for each provider, of a task

# Measured: `python -m benchmarks.shard`, `benchmarks.queue`, on the machine that the page names.
REDIS_SECONDS = 100e-6  # of the server's processor, for one call
WAITING_BYTES = 540  # of Redis, for a task that waits
OPEN_SECONDS = 50e-6  # of reconcile's processor, for an open task
PROVIDER_SECONDS = 11e-3  # the same, for a provider without any
POLL_CPU_SECONDS = 3.2e-3  # of a run's processor, for a poll
REQUEST_SECONDS = 0.03  # of enqueue, beside the provider's reply
EFFICIENCY = 1.19  # a run takes so many times the least that its threads need

# Assumed.
READ_SECONDS = 0.005  # one call of DynamoDB
WHOLE_CORE_MB = 1769  # Lambda gives one processor for so much memory
ITEM_KB = 0.6  # a stored task, small
PLATFORM_BYTES = 420  # that Lambda logs of each invocation
ECPUS = 5  # of one call of a script
ATTEMPT_KB = 8  # through a NAT, with a handshake: connections are not kept
IDLE_RECEIVES = 650_000  # a month, by the mapping of the wake-ups
SMALL_GB = 0.125  # of a function that does nothing but ask, in the alternatives
SHARE = 0.7  # of a limit, that may be used for long

FUNCTIONS = {name: one["Properties"] for name, one in template()["Resources"].items() if name.endswith("Function")}
DEFAULTS = {name: one.get("Default") for name, one in template()["Parameters"].items()}
ENQUEUE_GB = float(FUNCTIONS["EnqueueFunction"]["MemorySize"]) / 1024
PROCESS_MB = float(template()["Globals"]["Function"]["MemorySize"])
WORKERS, PARALLEL = int(DEFAULTS["MaxWorkers"]), int(DEFAULTS["ParallelTasks"])
MOST_WORKERS = int(template()["Parameters"]["MaxWorkers"]["MaxValue"])
RECONCILE_SECONDS = float(FUNCTIONS["ReconcileFunction"]["Timeout"]) - STOP_SECONDS
WINDOW_SECONDS = Settings(provider_servers={}).window_seconds


def index_writes(before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """What DynamoDB writes in the index `open` where an item changes so: an entry whose sort key changes is moved."""
    if "open" not in before or "open" not in after:
        return int(("open" in before) != ("open" in after))
    if before["updated_at"] != after["updated_at"]:
        return 2
    return int(before.get("generation") != after.get("generation"))


def span_seconds(a_second: float) -> float:
    """How long a run stays after its first attempt began, at the mean: until nothing more falls due within a second."""
    reach = min(a_second * AT_HAND_SECONDS, 50)
    return min((math.exp(reach) - 1 - reach) / a_second, WINDOW_SECONDS)


def run_seconds(a_second: float) -> float:
    """Paid seconds of runs for one poll, where so many of a provider fall due in a second, at random."""
    nothing_follows = math.exp(-a_second * AT_HAND_SECONDS)
    waits = (1 - nothing_follows * (1 + a_second * AT_HAND_SECONDS)) / a_second
    return max((WARM_SECONDS + ATTEMPT_SECONDS) * nothing_follows + waits, busy_seconds())


def reconcile_seconds(providers: int) -> float:
    """What a run of reconcile takes where few tasks are open, at most as long as it may."""
    each = PROVIDER_SECONDS * WHOLE_CORE_MB / PROCESS_MB + SHARDS * READ_SECONDS + RECONCILE_CALLS * TRIP_SECONDS
    return min(providers * each, RECONCILE_SECONDS)


def busy_seconds(parallel: int = PARALLEL, megabytes: float = PROCESS_MB) -> float:
    """The same at the least, where all its threads ask or its processor is full."""
    return max(ATTEMPT_SECONDS / parallel * EFFICIENCY, POLL_CPU_SECONDS * WHOLE_CORE_MB / megabytes)


@dataclass(frozen=True, slots=True)
class Load:
    """So many tasks a day, evenly of so many providers; each is asked at its request and by two polls."""

    tasks: int
    providers: int

    @property
    def tasks_a_second(self) -> float:
        return self.tasks / DAY

    @property
    def polls(self) -> float:
        """A second."""
        return self.tasks_a_second * len(POLL_SECONDS)

    @property
    def runs_at_once(self) -> float:
        """Runs at work at the mean, the schedule's apart; so many workers there must be."""
        return self.polls * run_seconds(self.polls / self.providers)

    @property
    def paid(self) -> float:
        """Seconds of process in each second: no more runs at once than the template allows."""
        scheduled = (WARM_SECONDS + 2 * TRIP_SECONDS * self.providers) / 60
        return min(self.runs_at_once, MOST_WORKERS) + scheduled

    @property
    def messages(self) -> float:
        """Wake-ups a second: one for each time that a provider has nothing at hand."""
        return self.polls * math.exp(-self.polls / self.providers * AT_HAND_SECONDS)

    @property
    def calls(self) -> float:
        """Calls to Redis a second, or fewer. The schedule's run claims of every provider each time that it looks."""
        stays = min(span_seconds(self.polls), WINDOW_SECONDS) / 60
        vain = min(self.providers * (RUN_CALLS / 60 + stays * self.polls), (stays + 1 / 60) / TRIP_SECONDS)
        asked = self.tasks_a_second * COUNTED["request"].redis + self.polls * COUNTED["unchanged"].redis
        looks = min(self.runs_at_once, MOST_WORKERS) / AT_HAND_SECONDS
        return asked + looks + self.messages * RUN_CALLS + vain

    @property
    def waiting(self) -> float:
        """Tasks that wait."""
        return self.tasks_a_second * sum(POLL_SECONDS)

    def units(self, kind: str) -> float:
        """DynamoDB's units a second: reads; writes, those of the index among them."""
        steps = [COUNTED[name] for name in ("request", "unchanged", "end")]
        each = {"reads": sum(one.reads for one in steps), "writes": sum(one.writes + one.index for one in steps)}
        looks = self.providers * SHARDS / 2 / EVERY_SECONDS if kind == "reads" else 0  # reconcile's: half a unit each
        return self.tasks_a_second * each[kind] + looks

    @property
    def log_bytes(self) -> float:
        """A second."""
        runs = self.messages + 1 / 60
        told = self.messages * NAMED_BYTES + self.providers * NAMED_BYTES / 60
        invocations = runs + self.tasks_a_second
        return (
            runs * (TICK_BYTES + METRICS_BYTES) + told + self.tasks_a_second * END_BYTES + invocations * PLATFORM_BYTES
        )

    @property
    def traces(self) -> float:
        """A second: X-Ray takes the first of each second and a twentieth of the others, of each function."""
        both = (self.tasks_a_second, self.messages + 1 / 60)
        return sum(min(one, 1) + max(one - 1, 0) * 0.05 for one in both)

    def bill(self) -> dict[str, float]:
        """Dollars a month."""
        gigabytes = max(self.waiting * WAITING_BYTES / 1e9, 0.1)
        kept = self.tasks * 30 * ITEM_KB / 1e6
        invocations = self.messages + 1 / 60 + self.tasks_a_second
        seconds = (self.paid + reconcile_seconds(self.providers) / EVERY_SECONDS) * PROCESS_MB / 1024
        seconds += self.tasks_a_second * (ATTEMPT_SECONDS + REQUEST_SECONDS) * ENQUEUE_GB
        units = dollars("dynamodb write", self.units("writes")) + dollars("dynamodb read", self.units("reads"))
        return {
            "API": MONTH * dollars("rest api", self.tasks_a_second),
            "Lambda": MONTH * (dollars("lambda second", seconds) + dollars("lambda request", invocations)),
            "SQS": dollars("sqs", IDLE_RECEIVES) + MONTH * dollars("sqs", self.messages * 3),
            "DynamoDB": MONTH * units + dollars("dynamodb stored", kept) + dollars("dynamodb recovery", kept),
            "Redis": dollars("valkey stored", gigabytes * 730) + MONTH * dollars("ecpu", self.calls * ECPUS),
            "logs": MONTH * dollars("logs", self.log_bytes / 1e9),
            "traces": MONTH * dollars("trace", self.traces),
            "metrics": dollars("metric", 3 * self.providers),
        }

    def nat(self) -> float:
        """Dollars a month for a NAT, in a VPC."""
        asked = (self.tasks_a_second + self.polls) * ATTEMPT_KB / 1e6
        return dollars("nat hour", 730) + MONTH * dollars("nat traffic", asked)

    def polling(self) -> float:
        """Dollars a month for waiting and asking alone: what another way would take the place of."""
        bill = self.bill()
        seconds = self.paid * PROCESS_MB / 1024
        runs = dollars("lambda second", seconds) + dollars("lambda request", self.messages + 1 / 60)
        reads = dollars("dynamodb read", self.tasks_a_second * COUNTED["unchanged"].reads)
        return MONTH * (runs + reads) + bill["SQS"] + bill["Redis"]

    # --- the same by other means: what waiting and asking cost, for one function of 128 MB that asks

    @property
    def _asks(self) -> float:
        each = dollars("lambda second", SMALL_GB * ATTEMPT_SECONDS) + dollars("lambda request", 1)
        return MONTH * self.polls * each

    def state_machine(self, transitions: int) -> float:
        """Dollars a month: so many transitions for a poll, two more for a task."""
        return MONTH * dollars("state transition", self.polls * transitions + self.tasks_a_second * 2) + self._asks

    def durable(self) -> float:
        """Dollars a month: one operation, and a KB written, for a poll; two operations more for a task."""
        operations = self.polls + self.tasks_a_second * 2
        each = dollars("durable operation", operations) + dollars("durable written", operations / 1e6)
        return MONTH * each + self._asks

    def delayed(self) -> float:
        """Dollars a month: one message sent, received and deleted for a poll."""
        return dollars("sqs", IDLE_RECEIVES) + MONTH * dollars("sqs", self.polls * 3) + self._asks


LOADS = [Load(tasks, providers) for tasks in TASKS for providers in PROVIDERS]


def per_million(a_month: float, polls: float) -> float:
    """Dollars for a million polls, of dollars a month and polls a second."""
    return a_month / (polls * MONTH) * 1e6


def money(amount: float) -> str:
    """Dollars, to two figures below a hundred."""
    return f"{amount:,.0f}" if amount >= 10 else f"{amount:.1f}" if amount >= 1 else f"{amount:.2f}"


def short(count: float) -> str:
    """A number, to about two figures."""
    return f"{count:,.0f}" if count >= 10 else f"{count:.1f}" if count >= 1 else f"{count:.2f}"


def power(tasks: int) -> str:
    return {10**4: "10⁴", 10**6: "10⁶", 10**8: "10⁸"}[tasks]


def usage() -> str:
    """What each load uses."""
    rows = (
        (
            power(one.tasks),
            f"{one.providers}",
            short(one.polls),
            f"{one.paid / one.polls:.2f}",
            short(one.runs_at_once),
            f"{(IDLE_RECEIVES + MONTH * one.messages * 3) / 1e6:,.1f}",
            short(one.calls),
            f"{one.calls / one.polls:,.0f}",
            f"{one.waiting * WAITING_BYTES / 1e6:,.1f}",
            f"{one.units('writes') * MONTH / 1e6:,.1f}",
            f"{one.units('reads') * MONTH / 1e6:,.1f}",
            f"{one.log_bytes * MONTH / 1e9:,.1f}",
        )
        for one in LOADS
    )
    heads = ("tasks a day", "providers", "polls a second", "seconds of process a poll", "runs at once",
             "SQS requests, M", "Redis calls a second", "of these a poll", "Redis MB", "write units, M",
             "read units, M", "logs, GB")  # fmt: skip
    return table(heads, rows)


def bills() -> str:
    """What each load costs."""
    rows = []
    for one in LOADS:
        bill = one.bill()
        cells = [money(amount) for amount in bill.values()]
        whole = sum(bill.values())
        polling = per_million(one.polling(), one.polls)
        cells += [f"**{money(whole)}**", money(one.nat()), money(polling)]
        rows.append((power(one.tasks), f"{one.providers}", *cells))
    parts = tuple(LOADS[0].bill())
    return table(("tasks a day", "providers", *parts, "**all**", "a NAT more", "a million polls"), rows)


def others() -> str:
    """What waiting and asking cost by other means."""
    loads = [Load(tasks, 1) for tasks in TASKS]
    ways: Mapping[str, Callable[[Load], float]] = {
        "Meanwhile": Load.polling,
        "Step Functions, a loop of Wait, Task and Choice": lambda one: one.state_machine(3),
        "Step Functions, a Task that is retried until it is done": lambda one: one.state_machine(1),
        "Lambda durable functions, wait-for-condition": Load.durable,
        "SQS, a message delayed again for each poll": Load.delayed,
    }
    rows = (
        (name, *(money(way(one)) for one in loads), cheaper_from(way) if way is not Load.polling else "")
        for name, way in ways.items()
    )
    heads = ("way", *(f"{power(one.tasks)} a day" for one in loads), "Meanwhile costs less from, tasks a day")
    return table(heads, rows)


def cheaper_from(way: Callable[[Load], float]) -> str:
    """The tasks a day from which waiting and asking cost less here, to one figure."""
    tasks = next(tasks for tasks in (int(10 ** (power / 50)) for power in range(100, 450)) if is_cheaper(tasks, way))
    return f"{round(tasks, 1 - len(str(tasks))):,}"


def is_cheaper(tasks: int, way: Callable[[Load], float]) -> bool:
    return Load(tasks, 1).polling() < way(Load(tasks, 1))


def day(tasks_a_second: float) -> str:
    """So many tasks a second, as tasks a day."""
    tasks = tasks_a_second * DAY
    return f"{tasks / 1e6:,.0f} million" if tasks >= 1e7 else f"{tasks / 1e6:,.1f} million"


def limits() -> str:
    """Where each part gives way, the first at the top, for one provider unless it says otherwise."""
    polls = len(POLL_SECONDS)
    one_run = 1 / busy_seconds()
    first = float(DEFAULTS["FirstAnswerSeconds"])
    index = sum(COUNTED[name].index for name in ("request", "unchanged", "end"))
    writes = sum(COUNTED[name].writes for name in ("request", "unchanged", "end"))
    calls = COUNTED["request"].redis + polls * COUNTED["unchanged"].redis
    looked = RECONCILE_SECONDS / OPEN_SECONDS / WHOLE_CORE_MB * PROCESS_MB
    served = RECONCILE_SECONDS / reconcile_seconds(1)
    rates = [  # tasks a second
        (
            "requests let through",
            f"{DEFAULTS['ApiRateLimit']} a second of each method",
            float(DEFAULTS["ApiRateLimit"]),
            "`ApiRateLimit`, `ApiBurstLimit`; above 10,000 a second the account's quota",
        ),
        (
            "workers",
            f"{WORKERS} runs of {PARALLEL} attempts: {WORKERS * one_run:,.0f} polls a second",
            WORKERS * one_run / polls,
            "`MaxWorkers` (to 100), `ParallelTasks` (to 200; from 30 on the processor is full: then `MemorySize` too)",
        ),
        (
            "concurrency of Lambda, quick replies",
            f"1,000 at once in an account, {ATTEMPT_SECONDS:g} s a request",
            SHARE * 1000 / (ATTEMPT_SECONDS + REQUEST_SECONDS),
            "the account's quota; `ProcessConcurrency` keeps a part for process",
        ),
        (
            "concurrency of Lambda, slow first replies",
            f"each request waits {first:g} s",
            SHARE * 1000 / first,
            "`FirstAnswerSeconds` 0, or a provider file's `firstAnswer`",
        ),
        (
            "one shard of Redis, processor",
            f"{1 / REDIS_SECONDS:,.0f} calls a second",
            SHARE / REDIS_SECONDS / calls,
            "[several provider files](#one-provider-on-one-shard); more providers spread by themselves",
        ),
        (
            "DynamoDB, a new table",
            "4,000 write units a second",
            4000 / (writes + index),
            "traffic that no more than doubles in 30 minutes, or warm throughput set beforehand",
        ),
        (
            "DynamoDB, the index of one provider",
            f"{SHARDS} keys of 1,000 writes a second",
            SHARE * SHARDS * 1000 / index,
            "several provider files",
        ),
    ]
    rest = [
        (
            "reconcile's run",
            f"{looked / 1e3:,.0f} thousand open tasks, or {served:,.0f} providers",
            "by what is open, not by rate",
            "`MemorySize` of `ReconcileFunction` in the template",
        ),
        (
            "the schedule's run",
            f"{RUN_CALLS * TRIP_SECONDS * 1000:g} ms for each provider, each minute",
            "by providers, not by rate",
            "a Redis that is near; fewer providers in a deployment",
        ),
    ]
    rows = [(what, much, day(rate), turn) for what, much, rate, turn in sorted(rates, key=lambda row: row[2])]
    return table(("what", "how much", "gives way at, tasks a day", "what to turn"), [*rows, *rest])


def prices() -> str:
    """The inputs in dollars."""

    def cost(one: Price) -> str:
        return f"{one.dollars * 1e6:g} a million" if one.dollars < 0.01 else f"{one.dollars:g}"

    rows = ((name, cost(one), one.unit, one.source or "not found: from memory") for name, one in PRICES.items())
    return f"{REGION}, read {READ}.\n\n" + table(("price", "dollars", "for one", "read at"), rows)


PARTS: Mapping[str, Callable[[], str]] = {
    "bills": bills, "usage": usage, "limits": limits, "others": others, "prices": prices,
}  # fmt: skip


def renewed(page: str) -> str:
    """The page with its tables made anew. Raises KeyError for one that nobody makes."""
    return re.sub(
        r"(<!-- made by benchmarks.simulate: (\w+) -->\n).*?(\n<!-- end of \2 -->)",
        lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n{part[3]}",
        page,
        flags=re.DOTALL,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the tables, or writes them into the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulate", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables of docs/scale.md")
    if parser.parse_args(arguments).write:
        PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    for name, make in PARTS.items():
        print(f"{name}\n\n{make()}\n")


if __name__ == "__main__":
    main()
