"""Ends a command quietly when whoever reads its output, such as `head`, has gone."""

import os
import sys
from collections.abc import Callable

UNREAD = 141
"""The exit code that shells show for a command that a closed pipe has ended."""


def until_unread(main: Callable[[], int]) -> int:
    """The exit code of `main`; UNREAD, and not a word, where nobody reads its output to the end."""
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more when it exits
        return UNREAD
