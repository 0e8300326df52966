"""The API of jobs: what it takes, what it shows, and its views."""

from workloads.api.calibration import Calibration, Recalibrate
from workloads.api.estimates import Estimates
from workloads.api.traffic import Traffic, TrafficFile
from workloads.api.views import CancelJob, ChangeUrgency, ExtendJob, JobDetail, Jobs

__all__ = [
    "Calibration",
    "CancelJob",
    "ChangeUrgency",
    "Estimates",
    "ExtendJob",
    "JobDetail",
    "Jobs",
    "Recalibrate",
    "Traffic",
    "TrafficFile",
]
