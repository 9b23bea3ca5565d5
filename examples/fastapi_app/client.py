"""Drives `service.py` as a customer and a supplier would, prints what it was told, and ends.

    python examples/fastapi_app/client.py [--url http://127.0.0.1:8000]

You will see an order that is answered, one that was answered before it was made, one sent twice, one that is sold out,
one that is cancelled, and what a callback says that comes twice, too late, or for nobody. Exit 1 if anything was not as
it should be.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
import uuid
from typing import Any


class Service:
    def __init__(self, url: str) -> None:
        self.url = url
        self.surprises = 0

    def __call__(self, wanted: int, method: str, path: str, body: object = None) -> Any:
        """One request; its answer as JSON. `wanted` is the status it should have."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                status, text = reply.status, reply.read()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read()
        print(f"{method:6} {path:40} {status} {text.decode()[:100]}")
        if status != wanted:
            self.surprises += 1
            print(f"       that should have been {wanted}")
        return json.loads(text)


def drive(ask: Service) -> None:
    run = uuid.uuid4().hex[:8]
    good = {"available": True, "arrives": "Tuesday"}
    lamp, chair, desk, shelf, bed = (f"{item}-{run}" for item in ("lamp", "chair", "desk", "shelf", "bed"))

    job_id = ask(202, "POST", f"/orders/{lamp}", {"item": "lamp", "count": 2})["id"]
    ask(409, "POST", f"/orders/{lamp}", {"item": "lamp", "count": 2})
    ask(202, "GET", f"/jobs/{job_id}/result?timeout=0.2")  # nobody has answered yet
    for _ in range(300):
        if ask(200, "GET", f"/jobs/{job_id}")["phase"] == "waiting":
            break
        time.sleep(0.1)
    else:
        sys.exit(f"job {job_id} has not asked the supplier after half a minute: is a worker running on this database?")
    ask(200, "POST", f"/callbacks/{lamp}?event=1", good)
    ask(200, "GET", f"/jobs/{job_id}/result")
    ask(200, "POST", f"/callbacks/{lamp}?event=1", good)  # the same one again
    ask(409, "POST", f"/callbacks/{lamp}?event=2", {"available": False})  # now it says otherwise: the first one counts
    ask(409, "DELETE", f"/jobs/{job_id}")  # it is final

    ask(202, "POST", f"/callbacks/{chair}", good)  # before there is such an order
    job_id = ask(202, "POST", f"/orders/{chair}", {"item": "chair", "count": 4})["id"]
    ask(200, "GET", f"/jobs/{job_id}/result")

    job_id = ask(202, "POST", f"/orders/{desk}", {"item": "desk", "count": 1})["id"]
    ask(202, "POST", f"/callbacks/nobody-{run}", good)
    ask(200, "DELETE", f"/jobs/{job_id}")
    ask(410, "POST", f"/callbacks/{desk}", good)  # too late
    ask(424, "GET", f"/jobs/{job_id}/result")

    ask(202, "POST", f"/callbacks/{shelf}", {"available": False})
    job_id = ask(202, "POST", f"/orders/{shelf}", {"item": "shelf", "count": 1})["id"]
    ask(424, "GET", f"/jobs/{job_id}/result")
    job_id = ask(202, "POST", f"/orders/{bed}", {"item": "bed", "count": 5000})["id"]
    ask(424, "GET", f"/jobs/{job_id}/result")

    ask(422, "POST", f"/orders/{bed}", {"item": "bed", "count": 0})
    ask(404, "GET", "/jobs/1")
    ask(404, "GET", "/jobs/1/result")


def main() -> int:
    parser = argparse.ArgumentParser(description="Drives service.py.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    service = Service(parser.parse_args().url)
    try:
        drive(service)
    except urllib.error.URLError as error:
        print(f"{service.url} does not answer ({error.reason}): start service.py first", file=sys.stderr)
        return 1
    print("all as it should be" if not service.surprises else f"{service.surprises} answers were not as they should be")
    return 1 if service.surprises else 0


if __name__ == "__main__":
    sys.exit(main())
