"""Kombu's file-system broker, with messages that appear whole.

Kombu writes a message under its final name, so that a worker which looks fifty times a second now
and then takes it away empty, and dies of it. Here it is written under another name and renamed.
"""

import os
from time import monotonic
from typing import Any
from uuid import uuid4

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.json import dumps


class Channel(filesystem.Channel):
    """A channel whose messages can't be read half."""

    # kombu's own classes disagree about the second name
    def _put(  # type: ignore[override]
        self, queue: str, payload: Any, **kwargs: Any
    ) -> None:
        name = f"{round(monotonic() * 1000)}_{uuid4()}.{queue}"
        draft = os.path.join(self.data_folder_out, f"{name}.part")
        try:
            with open(draft, "wb") as file:
                file.write(dumps(payload).encode())
            os.replace(draft, os.path.join(self.data_folder_out, f"{name}.msg"))
        except OSError as error:
            raise ChannelError(f"The broker's folder takes no message: {error}") from error


class Transport(filesystem.Transport):
    """The file-system transport of this project."""

    Channel = Channel


def install() -> None:
    """Make filesystem:// mean this transport."""
    TRANSPORT_ALIASES["filesystem"] = f"{__name__}:Transport"
