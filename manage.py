#!/usr/bin/env python3
"""Entry point of the management commands; a wrong setting ends it with one sentence."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import execute_from_command_line

    from config.env import load_settings_or_exit

    load_settings_or_exit()
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
