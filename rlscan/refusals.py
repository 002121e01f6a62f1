"""How a command refuses: what is the user's to mend is said in one message, without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def refusals() -> Iterator[None]:
    """A spec that is refused or a file that is missing is the user's to mend: the message alone, and exit code 1."""
    try:
        yield
    except (ValueError, OSError) as error:
        # As it is: its carets stand under what they point at only where no line is wrapped.
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
