"""Answers that an outside service sends by HTTP, to a signed URL that is valid for one job.

`signing` makes and checks the signed tokens; `asgi` is the application that receives the answers, `hipq.callbacks`.
Nothing is imported here, so that a program that only signs URLs loads no event loop.
"""

SIZE = 1 << 20
"""The largest answer in bytes, by default."""
RATE = 1000
"""Calls a second from one address, by default."""
