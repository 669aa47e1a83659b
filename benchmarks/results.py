"""The page of results: every figure that was kept, with its bar and its verdict. `python -m benchmarks.results`.

results.md is made of results.json, where each benchmark keeps the rows of its last run with `--keep`.
"""

import math
import os
import platform
from html import escape
from pathlib import Path

import msgspec
from msgspec import Struct

FOLDER = Path(__file__).parent
KEPT = FOLDER / "results.json"
PAGE = FOLDER / "results.md"
PLOT = FOLDER / "results.svg"
WIDTH_PX, LEFT_PX, TARGET_PX, ROW_PX = 900, 420, 300, 20
MOST_SHARE = 1.5  # how far a bar of the plot may go
ORDER = ("process", "queue", "enqueue", "cold_start", "lateness", "peers")
"""The benchmarks' sections, first to last; others come after these."""
HEAD = """\
# Results

What Meanwhile costs, each figure beside the bar that it is held to. `make bench` measures again
and writes this page. Machines differ: compare figures of one section only, and those of a machine that had other
work (its load says so) hardly at all.

![Each figure as a share of its target](results.svg)
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
    def share(self) -> float:
        """The figure as a share of its bar; the bar as one of the figure where that is the least."""
        assert self.bar
        low, high = (self.bar, self.figure) if self.least else (self.figure, self.bar)
        return low / high if high else math.inf

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
    """The processors and the Python of this run, and how many programs wanted a processor in the minute before it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor() or platform.machine()
    load = f"load {os.getloadavg()[0]:.1f} before the run"
    return f"{os.cpu_count()} processors ({model}), {load}, {platform.system()}, Python {platform.python_version()}"


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
    """Make the page and its plot."""
    sections = kept()
    PAGE.write_text(page(sections))
    PLOT.write_text(plot([row for section in sections for row in section.rows if row.bar]))


def page(sections: list[Section]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_of_section(one) for one in sections)])


def plot(rows: list[Row]) -> str:
    """Each figure that has a bar, as a share of that: what is within it ends left of the line."""
    height = ROW_PX * (len(rows) + 1)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{height}" font-family="sans-serif"']
    lines += ['  font-size="12"><rect width="100%" height="100%" fill="white"/>']
    for number, row in enumerate(rows):
        share, y = row.share, ROW_PX * number + ROW_PX // 2
        length = min(share, MOST_SHARE) * TARGET_PX
        color = "#3a8f5c" if row.is_met else "#c8553d"
        name = escape(f"{row.name}, {row.unit}")
        lines.append(f'<text x="{LEFT_PX - 8}" y="{y + 12}" text-anchor="end">{name}</text>')
        lines.append(f'<rect x="{LEFT_PX}" y="{y}" width="{length:.0f}" height="{ROW_PX - 6}" fill="{color}"/>')
        lines.append(f'<text x="{LEFT_PX + length + 4:.0f}" y="{y + 12}">{row.figure:.2f}</text>')
    x = LEFT_PX + TARGET_PX
    lines.append(f'<line x1="{x}" y1="0" x2="{x}" y2="{height}" stroke="black" stroke-dasharray="3 3"/>')
    lines.append(f'<text x="{x + 4}" y="11">target</text></svg>')
    return "\n".join([*lines, ""])


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
