"""The page of results: every figure that was kept, with its bar and its verdict. `python -m benchmarks.results`.

results.md is made of results.json, where each benchmark keeps the rows of its last run with `--keep`.
"""

import os
import platform
from pathlib import Path

import msgspec
from msgspec import Struct

FOLDER = Path(__file__).parent
KEPT = FOLDER / "results.json"
PAGE = FOLDER / "results.md"
ORDER = ("process", "queue", "enqueue", "cold_start", "lateness", "peers")
"""The benchmarks' sections, first to last; others come after these."""
HEAD = """\
# Results

What Meanwhile costs, each figure beside the bar that it is held to. `make bench` measures again
and writes this page. Machines differ: compare figures of one section only.
"""


class Row(Struct, frozen=True, omit_defaults=True):
    """One figure; `Table.say` tells what is in it."""

    name: str
    figure: float
    unit: str
    bar: float | None = None
    least: bool = False
    cpu: float | None = None
    spread: tuple[float, float] | None = None
    why: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the figure is as good as its bar; None without a bar."""
        if self.bar is None:
            return None
        return self.figure >= self.bar if self.least else self.figure <= self.bar

    @property
    def held_to(self) -> str:
        """The bar, in words."""
        return "" if self.bar is None else f"{'≥' if self.least else '≤'} {self.bar:g}"


class Section(Struct, frozen=True):
    """The rows of one run of one benchmark; `date` is a day, `versions` are of other things than Python."""

    name: str
    title: str
    date: str
    machine: str
    versions: dict[str, str]
    rows: list[Row]


def machine() -> str:
    """The processors and the Python of this run."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor() or platform.machine()
    return f"{os.cpu_count()} processors ({model}), {platform.system()}, Python {platform.python_version()}"


def kept() -> list[Section]:
    """The sections of the last runs, in the page's order."""
    sections = msgspec.json.decode(KEPT.read_bytes(), type=list[Section]) if KEPT.exists() else []
    return sorted(sections, key=lambda one: (ORDER.index(one.name) if one.name in ORDER else len(ORDER), one.name))


def keep_section(section: Section) -> None:
    """Put it in the place of the same benchmark's last, and make the page again."""
    sections = [one for one in kept() if one.name != section.name] + [section]
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(sections), indent=1) + b"\n")
    write()


def write() -> None:
    """Make the page."""
    PAGE.write_text(page(kept()))


def page(sections: list[Section]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_of_section(one) for one in sections)])


def _of_section(section: Section) -> str:
    versions = "".join(f", {name} {version}" for name, version in section.versions.items())
    lines = [f"## {section.title}", "", f"{section.date}: {section.machine}{versions}.", ""]
    lines += ["| what | figure | by CPU | target | verdict |", "|---|---:|---:|---|---|"]
    return "\n".join([*lines, *map(_line, section.rows), ""])


def _line(row: Row) -> str:
    figure = f"{row.figure:.2f} {row.unit}" + (" ({:.2f} to {:.2f})".format(*row.spread) if row.spread else "")
    missed = f"**missed**: {row.why}" if row.why else "**missed**"
    verdict = {None: "", True: "met", False: missed}[row.is_met]
    return f"| {row.name} | {figure} | {'' if row.cpu is None else f'{row.cpu:.2f}'} | {row.held_to} | {verdict} |"


if __name__ == "__main__":
    write()
