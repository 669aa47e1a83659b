"""The table that a benchmark prints: one row for each figure, with the bar that it is held to and a verdict.

    add_keep(parser)
    …
    with Table("queue", "The queue", keep=chosen.keep, versions=versions(client)) as table:
        table.say("one add", 0.66, "x raw", 0.65, least=True)

With `--keep` the rows replace those of the last run in results.json, and results.md and its plots are made again.
"""

from argparse import ArgumentParser
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from benchmarks.results import Row, Section, keep_section, machine


def add_keep(parser: ArgumentParser) -> None:
    """The option `--keep`."""
    parser.add_argument("--keep", action="store_true", help="keep the figures in benchmarks/results.md")


class Table:
    """Prints rows as they are said, and keeps them at the end where `keep` asks for that and nothing was raised.

    `name` is the benchmark's: its section of results.md; `title` is that section's; `versions` are those of what is
    measured or measured with, beside this Python's.
    """

    def __init__(self, name: str, title: str, *, keep: bool = False, versions: dict[str, str] | None = None) -> None:
        self._keep = keep
        self._section = Section(name, title, datetime.now(UTC).date().isoformat(), machine(), versions or {}, [])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._keep and error is None:
            keep_section(self._section)

    def add(self, row: Row) -> None:
        """One row that is printed elsewhere."""
        self._section.rows.append(row)

    def say(
        self,
        name: str,
        figure: float,
        unit: str,
        bar: float | None = None,
        *,
        least: bool = False,
        cpu: float | None = None,
        spread: tuple[float, float] | None = None,
        why: str = "",
    ) -> None:
        """One row. `least`: the figure must be as high as the bar, else as low; without a bar it has no verdict.

        `cpu` is the same by processor time, `spread` the lowest and the highest round of those whose median it is, and
        `why` what explains a miss.
        """
        row = Row(name, figure, unit, bar, least, cpu, spread, why)
        if not self._section.rows:
            print(f"{'':<48}{'figure':>8} {'':<14}{'bar':<8}{'':<8}by CPU", flush=True)
        self.add(row)
        verdict = {None: "", True: "ok", False: "MISSED"}[row.is_met]
        by_cpu = "" if cpu is None else f"{cpu:.2f}"
        print(f"{name:<48}{figure:>8.2f} {unit:<14}{row.held_to:<8}{verdict:<8}{by_cpu}".rstrip(), flush=True)
