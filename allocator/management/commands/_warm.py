"""Commands that plan load the planner first, and say so where it has to be compiled."""

import gc

from django.core.management.base import BaseCommand, CommandError

from allocator.core.validate import CannotCompile
from allocator.core.warm import is_ready, warm


def warm_up(command: BaseCommand) -> None:
    """Load the compiled planner, so that nothing waits for it later. One line if it can't be."""
    try:
        if not is_ready():
            command.stderr.write(
                "Compiling the planner, once per version: this takes about half a minute."
            )
        warm()
    except CannotCompile as error:
        raise CommandError(str(error), returncode=2) from None
    # What is loaded by now stays, and a cycle makes many objects that refer to each other and are
    # soon free: looking for the others all the time takes a twentieth of a day that is played.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
