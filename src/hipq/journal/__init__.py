"""The journal: a local file in front of the store, in which jobs are safe before the store has them.

batch, position     the jobs that are written together, and where they are
segment             one file: its name and its first line
scan                a file read back: whole batches, damage, a cut end
folder, notes       the files on disk: lock, identity, creating, reading
quarantine, refused damaged bytes, and jobs that the store would not take
examine, recover    what is in a folder, and what opening it does about that
append, tail        one thread writes; while it syncs, the next batches collect
reserve, front      reading from the front, in reservations
journal             all of it together: what the daemon uses
"""

from hipq.journal.batch import Batch
from hipq.journal.finding import JournalFinding
from hipq.journal.journal import Journal
from hipq.journal.position import Position
from hipq.journal.refused import RefusedJob
from hipq.journal.reserve import Reserved

__all__ = ["Batch", "Journal", "JournalFinding", "Position", "RefusedJob", "Reserved"]
