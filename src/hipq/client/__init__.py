"""A client of the daemon, `hipq serve`, for Python programs.

    from hipq.client import Client

    with Client("http://127.0.0.1:8080", token) as client:
        (id,) = client.add("resize", {"picture": 17})
        print(client.result(id, timeout=60).json())

`AsyncClient` has the same methods, to be awaited. Nothing but httpx2 is needed: pip install 'hipq[client]'.
"""

from hipq.client.clients import AsyncClient, Client
from hipq.client.replies import Result

__all__ = ["AsyncClient", "Client", "Result"]
