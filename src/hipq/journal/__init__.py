"""The journal: a local file in front of the store, in which jobs are safe before the store has them.

batch            the jobs that are written together
segment          one file: its name, its first line, and positions in it
scan             a file read back: whole batches, damage, a cut end
directory        files that survive a power cut
folder           the journal's own directory: lock, identity, segments
quarantine       damaged bytes, and jobs that the store would not take
recover          what is in a folder, and what opening it does about that
append           one thread writes; while it syncs, the next batches collect
front, reserve   reading from the front, in reservations
journal          all of it together: what the daemon uses
"""

from hipq.journal.batch import Batch
from hipq.journal.journal import Journal
from hipq.journal.quarantine import JournalFinding, RefusedJob
from hipq.journal.reserve import Reserved
from hipq.journal.segment import Position

__all__ = ["Batch", "Journal", "JournalFinding", "Position", "RefusedJob", "Reserved"]
