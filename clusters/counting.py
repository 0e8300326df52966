"""Numbers of things, told to a reader of a terminal."""


def plural(number: int, noun: str, many: str = "") -> str:
    """Count things: ``many`` where their name takes more than an s."""
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
