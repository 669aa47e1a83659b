"""How late tasks are asked where more providers are busy than there are workers: `python -m benchmarks.busy`.

In virtual time, as `benchmarks.lateness`, with its assumptions: the wake-ups of all providers come by one queue, whose
messages start no more runs at once than MAX_WORKERS; a run gets up to ten of them, and serves the providers they name.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor

from benchmarks.lateness import DELIVERIES, simulate

PROVIDERS = 40
LOADS = {6: 1.5, 30: 0.5}  # tasks a minute of each provider, and for how many minutes they come
WORKERS = (4, 40)
COLUMNS = ("late p50, s", "late p99, s", "latest, s", "paid s a poll", "Redis calls a poll", "runs at once")


def main() -> None:
    """Prints the table, in about five minutes on two processors."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.busy", description=__doc__)
    parser.add_argument("--providers", type=int, default=PROVIDERS, help="that are busy (%(default)s)")
    parser.add_argument("--scale", type=float, default=1, help="times as many tasks (%(default)s)")
    chosen = parser.parse_args()
    print(f"{'':<44}" + "".join(f"{column:>20}" for column in COLUMNS))
    with ProcessPoolExecutor() as pool:
        under_way = {
            (each, workers): pool.submit(
                simulate, each * chosen.providers, minutes * chosen.scale, DELIVERIES[0], 1,
                providers=chosen.providers, max_workers=workers,
            )
            for each, minutes in LOADS.items()
            for workers in WORKERS
        }  # fmt: skip
        for (each, workers), future in under_way.items():
            found = future.result()
            polls = len(found.late)
            late = (found.late_by(0.5), found.late_by(0.99), found.late[-1])
            cells = [f"{seconds:.2f}" for seconds in (*late, found.paid_seconds / polls)]
            cells += [f"{found.calls / polls:.0f}", f"{found.most_at_once}"]
            name = f"{each * chosen.providers:,} a minute, MaxWorkers {workers}"
            print(f"{name:<44}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
