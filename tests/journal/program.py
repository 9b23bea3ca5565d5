"""A process that writes to a journal, and prints the number of each batch when it is acknowledged.

python -m tests.journal.program FOLDER one COUNT        one after the other, whatever is said about each
python -m tests.journal.program FOLDER many             from several threads, until it is killed
python -m tests.journal.program FOLDER small LIMIT      files may have so many bytes; later they may have more
"""

from __future__ import annotations

import os
import resource
import sys
import threading
from itertools import count

from hipq.errors import JournalError
from hipq.journal import Journal
from tests.journal.helpers import batch


def say(*words: object) -> None:
    """At once, and in one piece."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def write(journal: Journal, number: int, size: int = 20) -> None:
    try:
        journal.write_now(batch(number, b"x" * size))
        say("acknowledged", number)
    except JournalError as error:
        say(type(error).__name__, number)


def many(journal: Journal) -> None:
    numbers = count(1)

    def writer() -> None:
        while True:
            with taking:
                number = next(numbers)
            write(journal, number, number * 37 % 3000)

    taking = threading.Lock()
    threads = [threading.Thread(target=writer) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def small(journal: Journal, limit: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    for number in range(1, 21):
        write(journal, number, 500)
    write(journal, 21, 2 * limit)
    write(journal, 22, 500)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    write(journal, 23, 2 * limit)


def main() -> None:
    folder, what, *more = sys.argv[1:]
    journal = Journal(folder, segment_bytes=50_000)
    say("open", len(journal.found))
    if what == "one":
        for number in range(1, int(more[0]) + 1):
            write(journal, number)
    elif what == "many":
        many(journal)
    else:
        small(journal, int(more[0]))
    say("broken" if journal.broken else "good")
    journal.close()


if __name__ == "__main__":
    main()
