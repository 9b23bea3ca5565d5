"""Answers that an outside service brings by HTTP, to a signed URL that is good for one job.

`signing` makes and checks what is signed; `asgi` is the application that takes the answers, `hipq.callbacks`. Nothing
is imported here: a program that only signs URLs loads no event loop.
"""

SIZE = 1 << 20
"""Bytes an answer may have, unless somebody says otherwise."""
RATE = 1000
"""Calls in a second from one address."""
