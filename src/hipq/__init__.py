"""hipq: a durable job queue for work whose answer comes back later."""

from hipq.app import Hipq
from hipq.callback import callbacks
from hipq.errors import (
    Conflict,
    DuplicateKey,
    HipqError,
    Invalid,
    JobFailed,
    NameClash,
    NotFound,
    SchemaError,
    StoreBroken,
    StoreError,
    StoreUnavailable,
)
from hipq.job.answer import Answer, Answered
from hipq.job.fault import Fault
from hipq.job.middleware import Middleware
from hipq.job.order import aged
from hipq.job.outcome import Failed, Ok, Progress, Retry, ServiceError, Wait
from hipq.job.retries import backoff, fixed, schedule
from hipq.job.view import Job
from hipq.job.why import Why
from hipq.job.windows import window
from hipq.job_id import JobId
from hipq.job_type import JobType
from hipq.limits.code import admit, defer, reject
from hipq.limits.limit import limit
from hipq.limits.per_lane import per_lane
from hipq.limits.rate import rate
from hipq.limits.share import share
from hipq.queue import Queue
from hipq.version import __version__ as __version__

__all__ = [
    "Answer", "Answered", "Conflict", "DuplicateKey", "Failed", "Fault", "Hipq", "HipqError", "Invalid", "Job",
    "JobFailed", "JobId", "JobType", "Middleware", "NameClash", "NotFound", "Ok", "Progress", "Queue", "Retry",
    "SchemaError", "ServiceError", "StoreBroken", "StoreError", "StoreUnavailable", "Wait", "Why", "admit", "aged",
    "backoff", "callbacks", "defer", "fixed", "limit", "per_lane", "rate", "reject", "schedule", "share", "window",
]  # fmt: skip
