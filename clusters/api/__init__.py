"""The API of machines: nodes, pools, and windows of maintenance."""

from clusters.api.inventory import (
    CallOffNode,
    ChangePool,
    KeepNode,
    LabelNode,
    RetireNode,
    SetRate,
)
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
    "CallOffNode",
    "CallOffWindow",
    "ChangePool",
    "ChangeWindow",
    "EndWindow",
    "KeepNode",
    "LabelNode",
    "Nodes",
    "Pools",
    "PreviewWindow",
    "PreviewWindowChange",
    "RetireNode",
    "SetRate",
    "WindowDetail",
    "Windows",
]
