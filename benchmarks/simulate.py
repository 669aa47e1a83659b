"""What so many tasks a day cost on AWS, and what gives way first: `python -m benchmarks.simulate`.

The tables of docs/scale.md, which `--write` writes, by the model in `benchmarks.model`.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence

from benchmarks.lateness import ATTEMPT_SECONDS, POLL_SECONDS, TRIP_SECONDS
from benchmarks.model import (
    COUNTED,
    DAY,
    IDLE_RECEIVES,
    MONTH,
    OPEN_SECONDS,
    PARAMETERS,
    PROCESS_MB,
    RECONCILE_SECONDS,
    REDIS_SECONDS,
    REQUEST_SECONDS,
    RUN_CALLS,
    WAITING_BYTES,
    WHOLE_CORE_MB,
    Load,
    busy_seconds,
    quiet,
    reconcile_seconds,
)
from benchmarks.prices import PRICES, READ, REGION, Price
from local import ROOT
from local.docs import filled, table
from shared.store.item import SHARDS

PAGE = ROOT / "docs" / "scale.md"
TASKS = (10**4, 10**6, 10**8)  # a day
PROVIDERS = (1, 40, 500)
SHARE = 0.7  # of a limit, that may be used for long
DEFAULTS = {name: one.get("Default") for name, one in PARAMETERS.items()}
WORKERS, PARALLEL = int(DEFAULTS["MaxWorkers"]), int(DEFAULTS["ParallelTasks"])
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


def still() -> str:
    """What a month costs in which nothing happens."""
    *parts, (limit, most) = ((name, money(amount)) for name, amount in quiet().items())
    whole = ("**all**", f"**{money(sum([*quiet().values()][:-1]))}**")
    return table(("what", "dollars a month"), [*parts, whole, (limit, most)])


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
        return f"{one.dollars * 1e6:g} a million" if one.dollars < 0.001 else f"{one.dollars:g}"

    rows = ((name, cost(one), one.unit, one.source or "not found: from memory") for name, one in PRICES.items())
    return f"{REGION}, read {READ}.\n\n" + table(("price", "dollars", "for one", "read at"), rows)


PARTS: Mapping[str, Callable[[], str]] = {
    "bills": bills, "quiet": still, "usage": usage, "limits": limits, "others": others, "prices": prices,
}  # fmt: skip


def renewed(page: str) -> str:
    """The page with its tables made anew. Raises KeyError for one that nobody makes."""
    return filled(page, "benchmarks.simulate", PARTS)


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
