"""The API of machines: nodes, pools, and windows of maintenance."""

from clusters.api.nodes import Nodes, Pools
from clusters.api.windows import (
    CallOffWindow,
    ChangeWindow,
    EndWindow,
    PreviewWindow,
    PreviewWindowChange,
    WindowDetail,
    Windows,
)

__all__ = [
    "CallOffWindow",
    "ChangeWindow",
    "EndWindow",
    "Nodes",
    "Pools",
    "PreviewWindow",
    "PreviewWindowChange",
    "WindowDetail",
    "Windows",
]
