"""Clusters, their pools and nodes, and the two logs that say what state each GPU was in."""

from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import F, Q


def connector_choices() -> list[tuple[str, str]]:
    """Callable, so that a new connector needs no migration."""
    return [("simulated", "Simulated")]


class Cluster(models.Model):
    """GPUs that one connector observes and drives."""

    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=100)
    connector = models.CharField(max_length=32, choices=connector_choices, default="simulated")
    options = models.JSONField(default=dict, blank=True)
    observed_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name


class Pool(models.Model):
    """GPUs of one type in one cluster; named by its slug in jobs, shares and files."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="pools")
    slug = models.SlugField(unique=True)
    name = models.CharField(max_length=100)
    gpu_type = models.CharField(max_length=50)
    position = models.PositiveIntegerField(default=0)

    class Meta:
        ordering = ("position", "id")

    def __str__(self) -> str:
        return self.name


class PoolRate(models.Model):
    """Price of a pool from an instant on, per mille of the reference GPU."""

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="rates")
    effective_at = models.DateTimeField()
    rate_per_mille = models.PositiveIntegerField()

    class Meta:
        ordering = ("effective_at",)
        constraints = (
            models.UniqueConstraint(fields=["pool", "effective_at"], name="one_rate_per_instant"),
        )

    def __str__(self) -> str:
        return f"{self.pool_id}: {self.rate_per_mille} from {self.effective_at}"


class Node(models.Model):
    """A machine of a pool. ``position`` orders the pool: large blocks take consecutive nodes."""

    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="nodes")
    name = models.CharField(max_length=64, unique=True)
    gpus = models.PositiveSmallIntegerField()
    position = models.PositiveIntegerField()
    active_from = models.DateTimeField()
    active_until = models.DateTimeField(null=True, blank=True)
    # Where it stands, what is special about it: people's word, which nothing plans by.
    label = models.CharField(max_length=100, blank=True, default="")

    class Meta:
        ordering = ("pool__position", "pool_id", "position")
        constraints = (
            models.UniqueConstraint(fields=["pool", "position"], name="one_node_per_position"),
            # GPU states are kept as bit masks in a signed 64-bit integer.
            models.CheckConstraint(
                condition=Q(gpus__gte=1, gpus__lte=62), name="node_1_to_62_gpus"
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def full_mask(self) -> int:
        """Bit mask with one bit set for each GPU of the node."""
        return (1 << self.gpus) - 1

    def is_active(self, at: datetime) -> bool:
        return self.active_from <= at and (self.active_until is None or at < self.active_until)


class Window(models.Model):
    """A maintenance window: nodes that are to be empty from an instant on, for one reason.

    What plans keep to are its drains, one a node, with its own instants; one that was called off
    has none. Written in clusters.windows only.
    """

    class State(models.TextChoices):
        """What it is at an instant; worked out, never stored."""

        PLANNED = "planned", "Planned"
        OPEN = "open", "Open"
        OVER = "over", "Over"
        CALLED_OFF = "called_off", "Called off"

    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=200)
    version = models.PositiveIntegerField(default=1)  # of the newest line of its record
    called_off_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("starts_at", "id")
        constraints = (
            models.CheckConstraint(
                condition=Q(ends_at__isnull=True) | Q(ends_at__gt=F("starts_at")),
                name="window_ends_after_start",
            ),
        )

    def __str__(self) -> str:
        return f"window {self.pk} from {self.starts_at}"

    def state(self, at: datetime) -> str:
        if self.called_off_at is not None:
            return self.State.CALLED_OFF
        if self.ends_at is not None and self.ends_at <= at:
            return self.State.OVER
        return self.State.OPEN if self.starts_at <= at else self.State.PLANNED


class WindowEvent(models.Model):
    """Append-only record of a window: who did what when, and what it was from then on."""

    class Kind(models.TextChoices):
        SET = "set", "Set"
        CHANGED = "changed", "Changed"
        ENDED = "ended", "Ended"
        CALLED_OFF = "called_off", "Called off"

    window = models.ForeignKey(Window, on_delete=models.PROTECT, related_name="events")
    version = models.PositiveIntegerField()
    kind = models.CharField(max_length=10, choices=Kind)
    at = models.DateTimeField()
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="+"
    )
    nodes = models.JSONField(default=list)  # names, in the order of the grid
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=200)

    class Meta:
        ordering = ("window_id", "version")
        constraints = (
            models.UniqueConstraint(fields=["window", "version"], name="one_event_per_version"),
        )

    def __str__(self) -> str:
        return f"{self.window_id}, version {self.version}: {self.kind}"


class Drain(models.Model):
    """A span in which nothing may be placed on a node (maintenance); open-ended if no end."""

    window = models.ForeignKey(  # none: written by a script
        Window, null=True, blank=True, on_delete=models.PROTECT, related_name="drains"
    )
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="drains")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=200)

    class Meta:
        ordering = ("starts_at", "id")
        constraints = (
            models.CheckConstraint(
                condition=Q(ends_at__isnull=True) | Q(ends_at__gt=F("starts_at")),
                name="drain_ends_after_start",
            ),
        )

    def __str__(self) -> str:
        return f"{self.node_id} from {self.starts_at}"


class NodeState(models.Model):
    """Append-only log of what the connector said of a node."""

    class State(models.TextChoices):
        UP = "up", "Up"
        DOWN = "down", "Down"

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="states")
    at = models.DateTimeField()
    state = models.CharField(max_length=8, choices=State)
    reason = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ("at", "id")
        indexes = (models.Index(fields=["node", "at"]),)

    def __str__(self) -> str:
        return f"{self.node_id} {self.state} at {self.at}"


class GpuState(models.Model):
    """Log of which GPUs of a node were held, free and down from an instant on (bit masks).

    Written from the connector's observation only, never from the ledger or from runs: it is the
    other side of the conservation proof.
    """

    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="gpu_states")
    at = models.DateTimeField()
    held = models.BigIntegerField()
    free = models.BigIntegerField()
    down = models.BigIntegerField()

    class Meta:
        ordering = ("at", "id")
        constraints = (
            models.UniqueConstraint(fields=["node", "at"], name="one_gpu_state_per_instant"),
        )
        # Few rows have GPUs down, and every cycle asks for those.
        indexes = (models.Index(fields=["down", "at"]),)

    def __str__(self) -> str:
        return f"{self.node_id} at {self.at}"


class SimulatedTask(models.Model):
    """What the simulated connector runs: its own memory, which nothing else reads."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
    external_id = models.CharField(max_length=64, unique=True)
    started_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(max_length=16)
    stopped_at = models.DateTimeField(null=True, blank=True)
    idle = models.JSONField(default=list)

    class Meta:
        ordering = ("id",)
        indexes = (models.Index(fields=["cluster", "stopped_at"]),)

    def __str__(self) -> str:
        return self.external_id


class SimulatedPlacement(models.Model):
    """GPUs that a simulated task holds on one node from an instant to another."""

    task = models.ForeignKey(SimulatedTask, on_delete=models.CASCADE, related_name="placements")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    mask = models.BigIntegerField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("id",)
        indexes = (models.Index(fields=["node", "ended_at"]),)

    def __str__(self) -> str:
        return f"{self.task_id} on {self.node_id}"


class SimulatedFault(models.Model):
    """A failure that the simulated cluster will have: the node goes down, its tasks die."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=200, default="node failure")

    class Meta:
        ordering = ("starts_at", "id")

    def __str__(self) -> str:
        return f"{self.node_id} from {self.starts_at} to {self.ends_at}"
