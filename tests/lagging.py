"""A simulated cluster that tells late: of each run's end it hears only after a while."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from clusters.connectors.base import GpuReport, Observation, RunReport
from clusters.connectors.simulated import SimulatedConnector
from clusters.models import SimulatedPlacement, SimulatedTask


class Lagging(SimulatedConnector):
    """Until it hears of an end, the run's GPUs count as held; then it tells both, with the true
    instants. Asked to stop a run it looks, and so hears of its end at once."""

    lag = timedelta(minutes=45)
    heard: ClassVar[set[str]] = set()  # runs whose end a stop found out

    def observe(
        self, *, since: datetime | None, at: datetime, live: Collection[str]
    ) -> Observation:
        super().observe(since=since, at=at, live=live)
        names = {*live, *self.heard}
        ended = SimulatedTask.objects.filter(external_id__in=names, stopped_at__isnull=False)
        late = ended.filter(stopped_at__gt=at - self.lag)
        hidden = list(late.exclude(external_id__in=self.heard))
        told = ended.exclude(pk__in=[task.pk for task in hidden])
        ends = [task.stopped_at for task in told if task.stopped_at is not None]
        since = since and min([since, *ends])
        with_end = super().observe(since=since, at=at, live=live)
        names = {task.external_id for task in hidden}
        self.heard.clear()
        return replace(
            with_end,
            runs=tuple(_alive(r) if r.external_id in names else r for r in with_end.runs),
            gpus=tuple(_still_held(r, hidden) for r in with_end.gpus),
        )

    def stop(self, external_id: str, *, at: datetime) -> RunReport:
        self.heard.add(external_id)
        return super().stop(external_id, at=at)


def _alive(report: RunReport) -> RunReport:
    return replace(report, ended_at=None, outcome="")


def _still_held(report: GpuReport, hidden: list[SimulatedTask]) -> GpuReport:
    mask = 0
    there: Any = SimulatedPlacement.objects.filter(task__in=hidden, node__name=report.node)
    for placement in there.filter(ended_at__lte=report.at):
        mask |= placement.mask
    return replace(
        report, held=report.held | mask, free=report.free & ~mask, down=report.down & ~mask
    )
