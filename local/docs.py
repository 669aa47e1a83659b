"""`make docs`: writes the parts of pages that describe code, from that code.

A page holds a generated part between two comments, `<!-- made by make docs: NAME -->` and `<!-- end of NAME -->`; the
rest of it is written by hand. `python -m local.docs` writes every part anew and says which pages have changed.
"""

import ast
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache, partial
from pathlib import Path

from local import ROOT
from local.openapi import description
from local.provider.schema import rows, schema
from local.provider.situations import SITUATIONS
from local.sam_template import template
from shared.bounds import BOUNDS
from shared.provider.language.part import Part
from shared.queue.queue import LAYOUT
from shared.reasons import Reason, Trait
from shared.settings import Settings


def table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def settings() -> str:
    """The environment variables, as settings.py has them."""
    rows = []
    for setting in fields(Settings):
        default = f"{setting.default:g}" if isinstance(setting.default, float) else str(setting.default or "")
        default = "" if setting.name == "provider_servers" else default
        rows.append((f"`{setting.name.upper()}`", f"`{default}`" if default else "", setting.metadata["meaning"]))
    return table(("variable", "default", "meaning"), rows)


def parameters() -> str:
    """The parameters of a deployment, as template.yaml has them."""
    rows = []
    for name, one in template()["Parameters"].items():
        default = one.get("Default", "")
        rows.append((f"`{name}`", f"`{default}`" if default != "" else "", one["Description"]))
    return table(("parameter", "default", "meaning"), rows)


def reasons() -> str:
    """Why an attempt or a task ended as it did, as reasons.py has it."""
    rows = (
        (f"`{one}`", one.meaning, "; ".join(trait.value for trait in Trait if trait in one.traits)) for one in Reason
    )
    return table(("reason", "meaning", "what follows"), rows)


def bounds() -> str:
    """How large each value may be, as bounds.py has it."""
    rows = ((f"`{name}`", f"{one.most:,}", one.what, one.above) for name, one in BOUNDS.items())
    return table(("value", "bytes at most", "what it is: where it stands", "above that"), rows)


def fields_of(part: type[Part]) -> str:
    """The fields of a part of the provider language, as its type has them."""
    return table(("field", "type", "default", "meaning"), rows(part))


def heading(path: Path) -> str:
    """The docstring of a module, or the comment at the head of a script."""
    text = path.read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(text)) or "" if path.suffix == ".py" else text.split("\n\n")[0].lstrip("- ")


def redis_keys() -> str:
    """What stands in Redis, as the queue's layout says."""
    names = [f"`{{queue:P}}{'' if key == 'queue' else ':' + key}`" for key in LAYOUT]
    return table(("key", "type", "holds"), [(name, *told) for name, told in zip(names, LAYOUT.values(), strict=True)])


def modules() -> str:
    """Every module and script of what is shipped and of the local stack, each with what it says of itself first."""
    paths = [path for room in ("handlers", "shared", "local") for path in sorted((ROOT / room).rglob("*"))]
    files = [path for path in paths if path.suffix in (".py", ".lua") and heading(path)]
    rows = ((f"`{path.relative_to(ROOT).as_posix()}`", heading(path).split("\n")[0]) for path in files)
    return table(("module", "what it does"), rows)


PROMISES = ("ends", "once", "submits", "limits", "turns", "callbacks", "told", "large", "faults")
"""The sections of docs/reliability.md, as `@pytest.mark.promise(section, words)` names them."""


@cache
def _marked(tests: Path) -> list[tuple[str, str, str]]:
    """Section, words and test of every promise. Raises ValueError for a section that there is not."""
    found = []
    for path in sorted(tests.rglob("test_*.py")):
        nodes = ast.parse(path.read_text(encoding="utf-8")).body
        for test in (node for node in nodes if isinstance(node, ast.FunctionDef)):
            for marker in test.decorator_list:
                if isinstance(marker, ast.Call) and ast.unparse(marker.func) == "pytest.mark.promise":
                    section, words = (ast.literal_eval(argument) for argument in marker.args)
                    if section not in PROMISES:
                        raise ValueError(f"{path}: a promise of an unknown section, {section}")
                    found.append((section, words, f"`{path.relative_to(tests.parent)}::{test.name}`"))
    return found


def promises(section: str, tests: Path = ROOT / "tests") -> str:
    """What the tests hold of a section, as their markers say."""
    held: dict[str, list[str]] = defaultdict(list)
    for of, words, test in _marked(tests):
        if of == section:
            held[words].append(test)
    rows = [(words, ", ".join(names)) for words, names in held.items()]
    return table(("fault" if section == "faults" else "promise", "held by"), rows)


def situations() -> str:
    """What is played against a provider file, and what follows."""
    return table(("what happens", "what follows"), ((one.happens, one.follows) for one in SITUATIONS))


PARTS: Mapping[str, Callable[[], str]] = {
    "settings": settings,
    "parameters": parameters,
    "reasons": reasons,
    "bounds": bounds,
    "redis-keys": redis_keys,
    "modules": modules,
    "situations": situations,
    **{f"fields-of-{part.__name__}": partial(fields_of, part) for part in Part.__subclasses__()},
    **{f"promises-{section}": partial(promises, section) for section in PROMISES},
}
"""The maker of each generated part, by its name."""
FILES: Mapping[str, Callable[[], str]] = {
    "docs/openapi.json": lambda: json.dumps(description(), indent=2, ensure_ascii=False) + "\n",
    "docs/provider.schema.json": lambda: json.dumps(schema(), indent=2, ensure_ascii=False) + "\n",
}
"""The maker of each file that is generated as a whole, by its path."""


def stale() -> dict[Path, str]:
    """What each page or file that is not as its makers say would have to be."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    made = {page: renewed(page.read_text(encoding="utf-8")) for page in pages}
    made |= {ROOT / path: maker() for path, maker in FILES.items()}
    return {path: text for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text}


def renewed(page: str) -> str:
    """The page with its generated parts made anew. Raises KeyError for a part that nobody makes."""
    return filled(page, "make docs", PARTS)


def filled(page: str, made_by: str, parts: Mapping[str, Callable[[], str]]) -> str:
    """The page with all that this command makes made anew. Raises KeyError for a part that is none of these."""
    return re.sub(
        rf"(<!-- made by {re.escape(made_by)}: ([\w-]+) -->\n).*?(\n<!-- end of \2 -->)",
        lambda part: f"{part[1]}\n{parts[part[2]]()}\n{part[3]}",
        page,
        flags=re.DOTALL,
    )


def main() -> None:
    for path, text in stale().items():
        path.write_text(text, encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
