#!/usr/bin/env python3
"""Entry point of the management commands; wrong settings and old databases get one sentence."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import execute_from_command_line

    from config.env import load_settings_or_exit

    load_settings_or_exit()
    from django.db import DatabaseError

    try:
        execute_from_command_line(sys.argv)
    except KeyboardInterrupt:
        print("\nallotment: stopped.", file=sys.stderr)
        sys.exit(130)  # as shells tell of Ctrl-C
    except DatabaseError:
        from config.migrated import what_to_run

        sentence = what_to_run()
        if sentence is None:
            raise
        sys.exit(f"allotment: {sentence}")


if __name__ == "__main__":
    main()
