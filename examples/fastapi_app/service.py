"""A web service that takes orders, asks a supplier for each, and is called back.

    pip install fastapi uvicorn
    python examples/fastapi_app/service.py                      # runs until Ctrl-C
    python examples/fastapi_app/client.py                       # in a second terminal: drives it, and ends

The worker is a thread of the web server. For one in a process of its own, on any machine that reaches the database:

    python examples/fastapi_app/service.py --worker apart
    PYTHONPATH=examples/fastapi_app hipq worker service:jobs    # where the service was started: they share orders.db

What it shows:
- `POST /orders` adds a job: `await order.aenqueue(...)`. Requests that come at the same time share one transaction.
- `POST /callbacks/{key}` brings the supplier's answer, however early or often: 200 it is used or known, 202 it is kept
  for a job that does not wait yet, 409 the job ended with another answer, 410 it came too late.
- `GET /jobs/{job_id}` says how a job is, `GET /jobs/{job_id}/result` waits for its end, holding no thread, `DELETE
  /jobs/{job_id}` cancels it.
- hipq's errors become HTTP statuses in one place: `NotFound` 404, `DuplicateKey` and `Conflict` 409, `Invalid` 422,
  `StoreUnavailable` 503. A result that takes too long is 202, one that failed is 424.
- Ctrl-C or SIGTERM lets requests and handlers finish; jobs that wait go on waiting in the database.

The database is `orders.db` in the current folder, or $HIPQ_DATABASE_URL (PostgreSQL: the same code).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

try:
    import uvicorn
    from fastapi import Body, FastAPI, Query, Request
    from fastapi.responses import JSONResponse
    from pydantic import BaseModel, Field
except ImportError as missing:
    sys.exit(f"this example needs two more packages ({missing.name} is missing): pip install fastapi uvicorn")

from hipq import (
    Answer,
    Answered,
    Conflict,
    DuplicateKey,
    Failed,
    Hipq,
    Invalid,
    Job,
    JobFailed,
    NotFound,
    Ok,
    StoreUnavailable,
    Wait,
    backoff,
)

# -- the jobs ---------------------------------------------------------------------------------------------------------
jobs = Hipq("orders")
orders = jobs.queue("orders", throttle_limit=100)


@dataclass
class Order:
    item: str
    count: int


@orders.job(timeout=24 * 3600, retry=backoff(attempts=5))
def order(job: Job[Order]) -> Wait:
    """Ask the supplier. A real one would be sent job.key, and told to call back to /callbacks/{job.key}."""
    if job.data.count > 1000:
        raise Failed("no supplier has so many")
    return Wait()


@order.answered
def supplied(job: Job[Order], answer: Answer) -> Ok:
    if not answer.data["available"]:
        raise Failed(f"{job.data.item} is sold out")
    return Ok({"item": job.data.item, "count": job.data.count, "arrives": answer.data["arrives"]})


# -- the web ----------------------------------------------------------------------------------------------------------
@asynccontextmanager
async def lifespan(_api: FastAPI) -> AsyncIterator[None]:
    """Around all requests: the tables are there before the first, and the worker ends after the last."""
    jobs.migrate()
    if os.environ.get("ORDERS_WORKER") == "apart":
        yield
    else:
        with jobs.working():  # in a thread; at the end handlers finish, and nothing new begins
            yield
    jobs.close()


api = FastAPI(title="Orders", lifespan=lifespan)


class NewOrder(BaseModel):
    item: str = Field(min_length=1, max_length=100)
    count: int = Field(ge=1)


@api.post("/orders/{key}", status_code=202)
async def add_order(key: str, new: NewOrder) -> dict[str, Any]:
    """The customer chooses the key: an order sent twice, because the first answer was lost, is one order (409)."""
    return {"id": await order.aenqueue(Order(new.item, new.count), key=key), "key": key}


STATUS = {Answered.BUFFERED: 202, Answered.CONFLICT: 409, Answered.LATE: 410}


@api.post("/callbacks/{key}")
def call_back(key: str, body: Annotated[Any, Body()], event: str | None = None) -> JSONResponse:
    """Bring an answer. Not `async`: it writes to the database, and FastAPI gives it a thread for that."""
    became = order.answer(key, body, answer_id=event)
    return JSONResponse({"became": became}, STATUS.get(became, 200))


@api.get("/jobs/{job_id}")
def show(job_id: int) -> dict[str, Any]:
    return described(jobs.job(job_id))


@api.get("/jobs/{job_id}/result")
async def result(job_id: int, timeout: Annotated[float, Query(ge=0, le=60)] = 10) -> Any:
    return {"id": job_id, "result": await jobs.aresult(job_id, timeout=timeout)}


@api.delete("/jobs/{job_id}")
def cancel(job_id: int) -> dict[str, Any]:
    jobs.cancel(job_id, "cancelled by the customer")
    return described(jobs.job(job_id))


def described(job: Job[Any]) -> dict[str, Any]:
    return {
        "id": job.id, "key": job.key, "data": job.data, "state": job.state, "phase": job.phase, "code": job.code,
        "attempt": job.attempt, "error": str(job.fault) if job.fault else None, "result": job.result,
        "history": job.history,
    }  # fmt: skip


ERRORS: dict[type[Exception], int] = {
    NotFound: 404, Conflict: 409, DuplicateKey: 409, Invalid: 422, JobFailed: 424, StoreUnavailable: 503,
    TimeoutError: 202,
}  # fmt: skip


def said(_request: Request, error: Exception) -> JSONResponse:
    """An error of hipq as an answer. The most special class counts: a DuplicateKey is an Invalid too."""
    status = next(ERRORS[kind] for kind in type(error).__mro__ if kind in ERRORS)
    body: dict[str, Any] = {"detail": str(error)}
    if isinstance(error, DuplicateKey):
        body["id"] = error.id
    return JSONResponse(body, status, {"Retry-After": "1"} if status in (202, 503) else None)


for kind in ERRORS:
    api.add_exception_handler(kind, said)


def main() -> None:
    parser = argparse.ArgumentParser(description="A web service that takes orders and is called back.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--worker", choices=["inside", "apart"], default="inside")
    options = parser.parse_args()
    os.environ["ORDERS_WORKER"] = options.worker
    uvicorn.run(api, port=options.port, timeout_graceful_shutdown=30)


if __name__ == "__main__":
    main()
