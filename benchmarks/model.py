"""What so many tasks a day use and cost on AWS: the model behind docs/scale.md.

Arithmetic over what was counted in the code (COUNTED; tests hold it to the handlers), simulated in virtual time
(`benchmarks.lateness`; a test holds `Load` to it), measured (`benchmarks.shard`), and assumed.
"""

import math
from dataclasses import dataclass

from benchmarks.lateness import ATTEMPT_SECONDS, POLL_SECONDS, TRIP_SECONDS, WARM_SECONDS
from benchmarks.prices import dollars
from local.sam_template import template
from shared.settings import Settings
from shared.store.item import SHARDS
from shared.work.reconcile import STOP_SECONDS
from shared.work.tick import AT_HAND_SECONDS

DAY, MONTH = 86_400, 730 * 3600  # seconds
EVERY_SECONDS = 300  # reconcile


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

# Measured: `python -m benchmarks.shard`.
REDIS_SECONDS = 100e-6  # of the server's processor, for one call
WAITING_BYTES = 540  # of Redis, for a task that waits
OPEN_SECONDS = 50e-6  # of reconcile's processor, for an open task
PROVIDER_SECONDS = 11e-3  # the same, for a provider without any

# Measured: `make bench`, of the whole process handler with conditional writes.
POLL_CPU_SECONDS = 3.8e-3  # of a run's processor, for a poll
EFFICIENCY = 1.10  # a run takes so many times the least that its threads need

# Assumed.
REQUEST_SECONDS = 0.03  # of enqueue, beside the provider's reply
READ_SECONDS = 0.005  # one call of DynamoDB
WHOLE_CORE_MB = 1769  # Lambda gives one processor for so much memory
ITEM_KB = 0.6  # a stored task, small
PLATFORM_BYTES = 420  # that Lambda logs of each invocation
ECPUS = 5  # of one call of a script
ATTEMPT_KB = 8  # through a NAT, with a handshake: connections are not kept
IDLE_RECEIVES = 650_000  # a month, by the mapping of the wake-ups
SMALL_GB = 0.125  # of a function that does nothing but ask, in the alternatives

FUNCTIONS = {name: one["Properties"] for name, one in template()["Resources"].items() if name.endswith("Function")}
PARAMETERS = template()["Parameters"]
ENQUEUE_GB = float(FUNCTIONS["EnqueueFunction"]["MemorySize"]) / 1024
PROCESS_MB = float(template()["Globals"]["Function"]["MemorySize"])
PARALLEL, MOST_WORKERS = int(PARAMETERS["ParallelTasks"]["Default"]), int(PARAMETERS["MaxWorkers"]["MaxValue"])
RECONCILE_SECONDS = float(FUNCTIONS["ReconcileFunction"]["Timeout"]) - STOP_SECONDS
WINDOW_SECONDS = Settings(provider_servers={}).window_seconds


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


def quiet() -> dict[str, float]:
    """Dollars a month of a deployment with one provider and a task a day, and of what cache.yaml adds by default."""
    bill, cache = Load(1, 1).bill(), template("cache.yaml")
    zones = len(cache["Resources"]["SqsInterface"]["Properties"]["SubnetIds"])
    secrets = sum(one["Type"] == "AWS::SecretsManager::Secret" for one in cache["Resources"].values())
    gigabytes, ecpus = (cache["Parameters"][name]["Default"] for name in ("MaxGigabytes", "MaxEcpuPerSecond"))
    return {
        "template.yaml without Redis": sum(bill.values()) - bill["Redis"],
        "the cache, which bills 100 MB at least": bill["Redis"],
        "its NAT and that one's address": dollars("nat hour", 730) + dollars("address hour", 730),
        "its endpoint for SQS, unless `SqsEndpoint=false`": dollars("endpoint hour", 730 * zones),
        "its secrets": dollars("secret", secrets),
        "the cache, at most: `MaxGigabytes`, `MaxEcpuPerSecond`": (
            dollars("valkey stored", 730 * gigabytes) + MONTH * dollars("ecpu", ecpus)
        ),
    }
