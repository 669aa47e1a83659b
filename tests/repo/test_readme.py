"""The README says what the code says."""

import re
from dataclasses import fields

from local import ROOT
from shared.settings import Settings

README = (ROOT / "README.md").read_text(encoding="utf-8")


def settings_table() -> str:
    """The table of settings as settings.py has them."""
    rows = ["| variable | default | meaning |", "|---|---|---|"]
    for setting in fields(Settings):
        default = (
            ""
            if setting.default in (None, "", ())
            else f"{setting.default:g}"
            if isinstance(setting.default, float)
            else setting.default
        )
        rows.append(
            f"| `{setting.name.upper()}` | {f'`{default}`' if default != '' else ''} | {setting.metadata['meaning']} |"
        )
    return "\n".join(rows)


def test_the_settings_table_is_the_one_that_settings_py_makes() -> None:
    assert settings_table() in README


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    missing = [link for link in links if not link.startswith("http") and not (ROOT / link).exists()]
    assert links
    assert missing == []
