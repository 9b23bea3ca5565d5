"""Answers (RELIABILITY I15, ANSWERS 1 to 18), checked over the trail of a run, transaction by transaction.

Its own idea of what belongs to whom: by the order in which things happened, and by the times that were written down.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from hipq.job import payload, transitions
from hipq.job.answer import APPLIED, BUFFERED, CONFLICT, DUPLICATE, LATE, MATCHED, PROGRESS, SETTLED, Answered
from hipq.job.model import queue_of
from hipq.job.states import ANSWERED, CANCELLING, ERROR, EXECUTING, RETRY, WAITING
from tests.simulation.audit import Write, require
from tests.simulation.scene import FENCED, LETTER

if TYPE_CHECKING:
    from tests.simulation.jobs import Jobs, Look
    from tests.simulation.outside import Letter, Outside, Receipt

Row = dict[str, Any]
Key = tuple[str, str, str]
"""Tenant, job type and key: there is one queue."""

LEGAL = {
    BUFFERED: {BUFFERED, MATCHED, LATE, DUPLICATE, CONFLICT},
    MATCHED: {MATCHED, PROGRESS, APPLIED, SETTLED, LATE},
}
"""Where an answer may go; from elsewhere nowhere."""
FIXED = ("queue", "tenant", "job_type", "job_key", "answer_id", "hash", "data", "error", "attempt", "arrived")
WORDS = {
    Answered.MATCHED: {MATCHED, SETTLED},
    Answered.BUFFERED: {BUFFERED},
    Answered.LATE: {LATE},
    Answered.CONFLICT: {CONFLICT},
}


class Copied(NamedTuple):
    """An answer came again: which, and whether it was still its job's turn."""

    answer: Row
    current: bool
    """The last job to have its key was this answer's; and if that lives, it is to be tried again."""


class Call:
    """One transaction."""

    def __init__(self, number: int, now: int) -> None:
        self.number = number
        self.now = now
        self.first: dict[int, Row] = {}
        """The jobs it wrote, as they were before;"""
        self.actors: dict[int, int] = {}
        self.ended: set[int] = set()
        """those that it ended;"""
        self.keys: set[Key] = set()
        """keys that had to do with it;"""
        self.answers: dict[int, Row] = {}
        """and the answers it wrote, as they were before ({} = they were not there)."""


class Answers:
    def __init__(self, tended: set[int], jobs: Jobs, outside: Outside, steps: int) -> None:
        self._steps = steps
        """By how much the calendar was set back, while somebody may have had the time from before."""
        self._tended = tended
        """Calls with which an operator changed the inbox."""
        self._jobs = jobs
        self._outside = outside
        self._rows: dict[int, Row] = {}
        self._final: dict[int, Row] = {}
        self._live: dict[Key, int] = {}
        self._waits: dict[Key, int] = {}
        """Live jobs by the keys of their waits."""
        self._ended: dict[Key, list[int]] = defaultdict(list)
        """By key, the jobs that ended, in that order;"""
        self._inbox: dict[int, Row] = {}
        self._by_key: dict[Key, set[int]] = defaultdict(set)
        self._buffered: dict[int, set[int]] = defaultdict(set)
        """by job, the answers that are kept for it;"""
        self._matched: dict[int, set[int]] = defaultdict(set)
        """by job, the answers it has to look at."""
        self._inserted: dict[int, list[Row]] = defaultdict(list)
        self._copied: dict[int, list[Copied]] = defaultdict(list)
        self._wrote: dict[int, set[Key]] = defaultdict(set)
        """By call: the answers that came, those that came again, and the keys of jobs it wrote."""
        self._was_late: set[int] = set()
        self.settled: dict[int, int] = {}
        """By job, the call that ended it with an answer."""
        self.phases: set[tuple[str, str]] = set()
        """The ways jobs went."""

    def check(self, writes: Iterable[Write]) -> dict[int, int]:
        """The jobs that were ended by answers, and the calls in which that was."""
        some = (write for write in writes if write.table in ("live", "final", "answer"))
        for _, group in groupby(some, key=lambda write: (write.call, write.actor)):
            self._check_call(list(group))
        for receipt in self._outside.receipts:
            self._check_receipt(receipt)
        wrong = set(self._outside.late) - self._was_late
        require(not wrong, "late", f"answers {wrong} were shown as late, and were not")
        return self.settled

    # -- one transaction --------------------------------------------------------------------------------------------
    def _check_call(self, writes: list[Write]) -> None:
        call = Call(writes[0].call, max(write.now for write in writes))
        for write in writes:
            if write.table == "answer":
                self._answer_written(write, call)
            else:
                self._job_written(write, call)
        for job_id, old in call.answers.items():
            if job_id in self._inbox:
                self._check_answer(old, self._inbox[job_id], call)
        jobs = {job for key in call.keys if (job := self._holder(key))} | call.first.keys()
        jobs |= {self._inbox[job_id]["job"] for job_id in call.answers if job_id in self._inbox} - {0}
        for job in sorted(jobs):
            self._check_job(job, call)

    def _job_written(self, write: Write, call: Call) -> None:
        if write.table == "final":
            old, new = self._rows[write.id], write.new
            self._check_time_out(write, old, new)
            self._final[write.id] = new
            for key in _keys(new):
                self._ended[key].append(write.id)
            call.ended.add(write.id)
        elif write.verb == "DELETE":
            self._live.pop(_key(write.old), None)
            self._waits.pop(_wait_key(write.old), None)
            old, new = self._rows.pop(write.id), write.old
        else:
            old, new = write.old, write.new
            if write.verb == "UPDATE":
                if old["owner"] and new["owner"]:
                    self._adopted(write)
                self._check_time_out(write, old, new)
                self._check_deadline(old, new, write)
                self._check_wait_key(old, new, write)
            self._live[_key(new)] = write.id
            self._rows[write.id] = new
        if new is not write.old:
            self.phases.add((old.get("phase", ""), new["phase"]))
        call.first.setdefault(write.id, old)
        call.actors.setdefault(write.id, write.actor)
        call.keys.update(_keys(new))
        self._wrote[call.number].update(_keys(new))

    def _check_wait_key(self, old: Row, new: Row, write: Write) -> None:
        """A wait's key is free when it is taken, and stays its job's until that waits anew, or ends."""
        if old["wait_key"] == new["wait_key"]:
            return
        waits = new["phase"] in (WAITING, ANSWERED) and old["phase"] in (EXECUTING, ANSWERED)
        require(waits, "wait key", f"job {write.id} lost its wait's key on the way to {new['phase']}", write)
        if old["wait_key"]:
            del self._waits[_wait_key(old)]
        if new["wait_key"]:
            key = _wait_key(new)
            taken = self._holder(key)
            require(not taken, "wait key", f"job {write.id} waits under a key of job {taken}", write)
            self._waits[key] = write.id

    def _holder(self, key: Key) -> int:
        """The live job to which an answer under this key goes: whose own key it is, or whose wait's; 0 = none."""
        return self._live.get(key) or self._waits.get(key, 0)

    def _adopted(self, write: Write) -> None:
        """The same run, which may have come to its end, under its engine's new lease."""
        before, after = write.old["token"], write.new["token"]
        if request := self._jobs.asked.get((write.id, before)):
            self._jobs.asked[write.id, after] = request
        for job_id in self._matched[write.id]:
            if look := self._jobs.looked.get((write.id, before, job_id)):
                self._jobs.looked[write.id, after, job_id] = look

    def _answer_written(self, write: Write, call: Call) -> None:
        old, new = write.old, write.new
        call.keys.add(_key(new or old))
        if write.verb == "DELETE":
            old_enough = old["keep_until"] < write.now + self._steps and old["state"] != MATCHED
            require(call.number in self._tended or old_enough, "answer lost", f"answer {write.id} is gone", write)
            self._forget(old)
            del self._inbox[write.id]
            return
        if write.verb == "INSERT":
            self._check_arrival(new)
            self._inserted[call.number].append(new)
        else:
            self._forget(old)
            if new["copies"] != old["copies"]:
                self._check_copy(old, new, call)
        call.answers.setdefault(write.id, old)
        self._inbox[write.id] = new
        if new["state"] == LATE:
            self._was_late.add(write.id)
        if new["state"] == MATCHED:
            self._matched[new["job"]].add(write.id)
        if new["state"] == BUFFERED and new["job"]:
            self._buffered[new["job"]].add(write.id)
        self._by_key[_key(new)].add(write.id)

    def _forget(self, old: Row) -> None:
        self._by_key[_key(old)].discard(old["id"])
        self._matched[old["job"]].discard(old["id"])
        self._buffered[old["job"]].discard(old["id"])

    # -- it comes ---------------------------------------------------------------------------------------------------
    def _check_arrival(self, new: Row) -> None:
        """When it is put into the inbox: whose it is."""
        key, at = _key(new), new["arrived"]
        for one in self._of_key(key):
            known = one["remember_until"] > at or (one["state"] == BUFFERED and one["keep_until"] > at)
            twin = new["answer_id"] != "" and one["answer_id"] == new["answer_id"] and known
            require(not twin, "I15", f"answer {new['id']} is answer {one['id']} again, and was kept as another", new)
        live = self._holder(key)
        if not live:
            require(new["state"] not in (MATCHED, SETTLED), "I15", f"answer {new['id']} was taken by no live job", new)
            self._check_unclaimed(new, key)
            return
        row = self._rows[live]
        require(new["job"] == live, "I15", f"answer {new['id']} came while job {live} had its key", new)
        states = {BUFFERED, MATCHED, SETTLED} if self._takes(row) else {BUFFERED}
        states |= set() if _is_for(new, row) and not _is_given_up(row) else {LATE}
        require(new["state"] in states, "I15", f"answer {new['id']} is {new['state']}", (new, row))

    def _check_unclaimed(self, new: Row, key: Key) -> None:
        """It comes and no job has its key: it is too late for the one that had it last, or early."""
        ended, at = self._ended[key], new["arrived"]
        window = new["early_until"] - at
        early = (new["state"], new["job"]) == (BUFFERED, 0)
        if not ended:
            require(early, "I15", f"answer {new['id']} is {new['state']} and nobody had its key", new)
            return
        last = ended[-1]
        end = self._final[last]["update_time"]
        if any(self._final[one]["update_time"] > end for one in ended):
            bound = early or new["job"] in ended  # the calendar was set: which one is the last?
            require(bound, "late", f"answer {new['id']} is of job {new['job']}", new)
        elif end >= at - window:
            require(new["job"] == last, "late", f"answer {new['id']} came after the end of job {last}", new)
            settled = any(_is_settled(one, last) for one in self._inbox.values())
            state = CONFLICT if settled else LATE
            require(new["state"] == state, "late", f"answer {new['id']} is {new['state']}, not {state}", new)
        else:
            require(early, "late", f"answer {new['id']} came long after the end of job {last}", new)

    def _check_copy(self, old: Row, new: Row, call: Call) -> None:
        require(new["copies"] == old["copies"] + 1, "duplicate", f"answer {new['id']} came once more", (old, new))
        same = {**old, "copies": 0} == {**new, "copies": 0}
        require(same, "duplicate", f"answer {new['id']} came again and is another now", (old, new))
        key = _key(new)
        if live := self._holder(key):
            current = live == new["job"] and self._rows[live]["state"] in (ERROR, RETRY) and new["state"] == APPLIED
        else:
            current = new["job"] in self._latest(key)
        self._copied[call.number].append(Copied(new, current))

    def _latest(self, key: Key) -> list[int]:
        """The job that ended last; or those that may be it, if the calendar was set meanwhile."""
        ended = self._ended[key]
        end = self._final[ended[-1]]["update_time"] if ended else 0
        return [one for one in ended if self._final[one]["update_time"] > end] + ended[-1:]

    def _of_key(self, key: Key) -> Iterator[Row]:
        return (self._inbox[job_id] for job_id in sorted(self._by_key[key]))

    def _takes(self, row: Row) -> bool:
        """Whether a job takes an answer that comes now."""
        if row["phase"] == WAITING:
            return not _tries(row)
        if row["phase"] == CANCELLING:
            return not _is_given_up(row)
        return row["state"] in (ERROR, RETRY) and row["attempt"] > 0

    # -- it goes its way --------------------------------------------------------------------------------------------
    def _check_answer(self, old: Row, new: Row, call: Call) -> None:
        job_id, before, after = new["id"], old.get("state", ""), new["state"]
        if old:
            kept = all(old[name] == new[name] for name in FIXED)
            require(kept, "I15", f"answer {job_id} is another one now", (old, new))
            bound = old["job"] in (0, new["job"])
            require(bound, "I15", f"answer {job_id} of job {old['job']} was given to job {new['job']}", new)
            legal = before == after or after in LEGAL.get(before, ())
            require(legal, "I15", f"answer {job_id} went from {before} to {after}", new)
        if after in (MATCHED, SETTLED) and before in ("", BUFFERED):
            self._check_given(old, new, call)
        if after in (PROGRESS, APPLIED, SETTLED) and before != after:
            self._check_used(old, new, call)
        if after in (LATE, DUPLICATE, CONFLICT) and before in (BUFFERED, MATCHED):
            self._check_left(old, new, call)

    def _check_given(self, old: Row, new: Row, call: Call) -> None:
        """A job takes it: one that lives, that has its key, that it is for; and those that came before it first."""
        job_id, job = new["id"], new["job"]
        row = self._final[job] if job in call.ended else self._rows.get(job)
        require(row is not None, "I15", f"answer {job_id} was given to job {job}, which is final", new)
        assert row is not None
        mine = _key(new) in _keys(row) or old.get("job") == job  # it came under a key that the job had then
        require(mine, "I15", f"answer {job_id} was given to a job with another key", (new, row))
        require(queue_of(job) == new["queue"], "I15", f"answer {job_id} was given to a job of another queue", new)
        now = row["update_time"]
        require(new["arrived"] == now or new["keep_until"] > now, "ttl", f"answer {job_id} was too old", (new, row))
        require(
            not self._is_copy(new, call), "duplicate", f"answer {job_id} was just looked at by job {job}", (new, row)
        )
        require(_is_for(new, row), "fence", f"answer {job_id} is not for attempt {row['attempt']}", (new, row))
        if old and not old["job"]:
            require(self._is_early(new, row), "late", f"answer {job_id} was not for job {job}", (new, row))
        surely = now + self._steps  # what was too old once is not given, also when the calendar is set back
        elder = [one["id"] for one in self._wanted(row, surely) if one["id"] < job_id]
        require(not elder, "order", f"answer {job_id} was given to job {job} before {elder}", (new, row))

    def _is_early(self, answer: Row, row: Row, surely: bool = False) -> bool:
        """It came before its job was added, not too long, and after the end of the job before that; `surely`: whatever
        the calendar was set to meanwhile."""
        ends = [self._final[one]["update_time"] for one in self._ended[_key(answer)] if one != row["id"]]
        after = not ends or answer["arrived"] > (max(ends) if surely else ends[-1])
        return bool(after and answer["early_until"] >= row["create_time"])

    def _wanted(self, row: Row, now: int) -> Iterator[Row]:
        """What lies in the inbox for a job, and has not been given to it."""
        for one in self._kept_for(row):
            mine = one["job"] == row["id"] or (one["job"] == 0 and self._is_early(one, row, surely=True))
            if mine and one["state"] == BUFFERED and one["keep_until"] > now and _is_for(one, row):
                yield one

    def _kept_for(self, row: Row) -> Iterator[Row]:
        """What came under its keys, and what is its own under whatever key that came."""
        found = set().union(self._buffered[row["id"]], *(self._by_key[key] for key in _keys(row)))
        return (self._inbox[job_id] for job_id in sorted(found))

    def _check_used(self, old: Row, new: Row, call: Call) -> None:
        """A job has looked at it: what came of that is what it leads to."""
        job_id, job, data = new["id"], new["job"], new["data"]
        before = call.first.get(job)
        require(before is not None, "I15", f"answer {job_id} was used and job {job} was not written", new)
        assert before is not None
        ended = job in call.ended
        row = self._final[job] if ended else self._rows[job]
        require((new["state"] == SETTLED) == ended, "I15", f"answer {job_id} is {new['state']}", (new, row))
        if ended:
            require(job not in self.settled, "I15", f"job {job} ended with two answers", new)
            self.settled[job] = call.number
        if not old:
            direct = ended and new["job_type"] == LETTER and not new["error"] and not call.actors[job]
            require(direct, "I15", f"answer {job_id} was used when it came", new)
        else:
            mine = before["phase"] == ANSWERED and before["owner"] == call.actors[job] != 0
            require(mine, "I15", f"answer {job_id} was used by engine {call.actors[job]}", (new, before))
        if ended and json.loads(row["history"])[-1]["event"] == "lifetime over":
            return
        if before["crashes"] > transitions.CRASHES_ALLOWED and row["failures"] > before["failures"]:
            return  # over it, its code crashed for the last time
        if new["error"]:
            failed = row["code"] == "error" if ended else row["failures"] == before["failures"] + 1
            require(failed, "I15", f"answer {job_id} says job {job} failed", row)
        elif new["job_type"] == LETTER:
            result = ended and row["code"] == "ok" and row["result"] == data
            require(result, "I15", f"answer {job_id} is not the result of job {job}", (new, row))
        else:
            look = self._jobs.looked.get((job, before["token"], job_id))
            require(look is not None, "I15", f"answer {job_id} was used, and nobody looked at it", (new, before))
            assert look is not None
            self._check_outcome(look, row, ended, new)

    def _check_outcome(self, look: Look, row: Row, ended: bool, answer: Row) -> None:
        match look.do:
            case "ok":
                holds = ended and row["code"] == "ok" and row["result"] == look.result
            case "failed":
                holds = ended and row["code"] == "failed" and f"answer {answer['id']}" in row["error"]
            case "retry":
                holds = _outlived(row) if ended else answer["state"] == APPLIED
            case "judge":
                holds = ended or answer["state"] == APPLIED
            case "raise":
                holds = False
            case _:
                holds = row["phase"] in (WAITING, ANSWERED) and answer["state"] == PROGRESS
        require(holds, "I15", f"answer {answer['id']} led to {look.do}", (answer, row))

    def _check_left(self, old: Row, new: Row, call: Call) -> None:
        """It was not used: its job ended, or is past the attempt it names."""
        job_id, job = new["id"], new["job"]
        if job in self._final and job not in call.ended:
            swept = (old["state"], new["state"]) == (BUFFERED, LATE)
            require(swept, "I15", f"answer {job_id} is {new['state']} after the end of job {job}", (old, new))
            return
        if job not in call.ended:
            row = self._rows.get(job)
            fenced = row is not None and new["state"] == LATE and old["state"] == BUFFERED and not _is_for(new, row)
            if row is not None and self._is_given_up_on(new, row, call):
                return
            useless = fenced or (new["state"] == DUPLICATE and old["state"] == BUFFERED and self._is_copy(new, call))
            require(useless, "answer lost", f"answer {job_id} is {new['state']} and its job goes on", (new, row))
            return
        settled = [one for one in map(self._inbox.get, call.answers) if one and _is_settled(one, job)]
        if not settled:
            state = LATE
        else:
            require(old["state"] == BUFFERED, "I15", f"job {job} had answer {job_id} and ended with another", new)
            state = DUPLICATE if settled[0]["hash"] == new["hash"] else CONFLICT
        require(new["state"] == state, "I15", f"answer {job_id} is {new['state']}, not {state}", new)

    def _is_given_up_on(self, new: Row, row: Row, call: Call) -> bool:
        """Its job has called its answer handler with it for as long as it may: it failed, and the answer is kept."""
        before = call.first.get(new["job"])
        if before is None or before["phase"] != ANSWERED or new["state"] != LATE or not _tries(before):
            return False
        over = 0 < json.loads(before["wait"]).get("gives_up", 0) <= row["update_time"]
        failed = row["failures"] == before["failures"] + 1 and _is_unread(new)
        return bool(over and failed)

    def _is_copy(self, new: Row, call: Call) -> bool:
        """Its job has just looked at the same one, and is to be tried again because of it."""
        had = [
            self._inbox[job_id]
            for job_id, old in call.answers.items()
            if old.get("state") == MATCHED and job_id in self._inbox
        ]
        used = [one for one in had if one["state"] == APPLIED or _is_unread(one)]
        looked_at = {(one["job"], one["hash"], one["job_key"]) for one in used}
        return not new["answer_id"] and (new["job"], new["hash"], new["job_key"]) in looked_at

    # -- at the commit ----------------------------------------------------------------------------------------------
    def _check_job(self, job: int, call: Call) -> None:
        row, matched = self._rows.get(job), sorted(self._matched[job])
        if row is None:
            require(not matched, "I15", f"job {job} is final, and is to look at answers {matched}")
            return
        if row["phase"] == ANSWERED:
            require(len(matched) == 1, "I15", f"job {job} is to look at answers {matched}", row)
        else:
            fits = len(matched) == (row["phase"] == WAITING and _tries(row) > 0)
            fits |= row["phase"] == CANCELLING and len(matched) == 1  # it was cancelled with that before it
            require(fits, "I15", f"job {job} ({row['phase']}) has answers {matched}", row)
        if self._takes(row) and (row["wait"] != "" or job in call.first):
            surely = max(call.now, row["update_time"]) + self._steps  # it may have been too old once
            wanted = self._wanted(row, surely)
            undecided = min((one["id"] for one in self._kept_for(row) if _is_undecided(one, row)), default=inf)
            missed = [one["id"] for one in wanted if one["id"] < undecided]
            require(not missed, "answer lost", f"job {job} takes answers, and {missed} are there", row)

    def _check_time_out(self, write: Write, old: Row, new: Row) -> None:
        """Time alone moves a job that waits when its time has come, and not before."""
        if old["phase"] != WAITING or not write.actor:
            return
        due = old["deadline"] <= new["update_time"]
        require(due, "time-out", f"job {write.id} moved before {old['deadline']}", write)
        again = new["phase"] == ANSWERED or not _tries(old)
        require(again, "time-out", f"job {write.id} has its answer, and timed out", write)

    def _check_deadline(self, old: Row, new: Row, write: Write) -> None:
        """The time a wait has is what the handlers said."""
        if new["phase"] != WAITING or _tries(new):
            return
        now, wait = new["update_time"], json.loads(new["wait"])
        if old["phase"] == EXECUTING:
            request = self._jobs.asked.get((write.id, old["token"]))
            if request is None:
                return
            until, beat = now + _micros(request.timeout) if request.timeout else old["deadline"], request.heartbeat
        elif old["phase"] == ANSWERED:
            before = json.loads(old["wait"])
            (look,) = [
                found
                for job_id in self._matched[write.id]
                if (found := self._jobs.looked.get((write.id, old["token"], job_id)))
            ]
            until = now + _micros(look.seconds) if look.seconds else before["until"]
            beat = before.get("heartbeat") if look.do in ("progress", "extend") else None
        else:
            require(False, "time-out", f"job {write.id} began to wait from {old['phase']}", write)
            return
        deadline = min(until, now + _micros(beat)) if beat else until
        require(wait["until"] == until, "time-out", f"job {write.id} waits until {wait['until']}, not {until}", write)
        require(new["deadline"] == deadline, "time-out", f"job {write.id} waits until {new['deadline']}", write)

    # -- what the world outside was told ----------------------------------------------------------------------------
    def _check_receipt(self, receipt: Receipt) -> None:
        inserted, copied = list(self._inserted[receipt.call]), list(self._copied[receipt.call])
        for letter, word in zip(receipt.letters, receipt.words, strict=True):
            if word == Answered.DUPLICATE:
                found = next((one for one in copied if _is_same(letter, one)), None)
                require(found is not None, "duplicate", f"{letter} is not one", receipt)
                assert found is not None
                copied.remove(found)
                alone = len(receipt.letters) == 1
                wrote = alone and self._wrote[receipt.call]
                require(not wrote, "duplicate", f"{letter} changed {wrote}", receipt)
            else:
                row = next((one for one in inserted if _is_kept(letter, one) and one["state"] in WORDS[word]), None)
                require(row is not None, "answer lost", f"{letter} was acknowledged as {word}", receipt)
                assert row is not None
                inserted.remove(row)
        require(not inserted and not copied, "I15", f"nobody brought {inserted} {copied}", receipt)


def _is_same(letter: Letter, copied: Copied) -> bool:
    """By its id; without one, by its body, if its job had it already and there is no other job since."""
    one = copied.answer
    if (one["job_type"], one["job_key"]) != (letter.job_type, letter.key):
        return False
    if letter.answer_id and one["answer_id"] == letter.answer_id:
        return True
    used = one["state"] in (APPLIED, SETTLED)
    body = one["data"] == payload.encode(letter.data) and bool(one["error"]) == letter.error
    return used and body and copied.current


def _is_kept(letter: Letter, row: Row) -> bool:
    said = (letter.job_type, letter.key, letter.answer_id or "", letter.error, letter.attempt or 0)
    kept = (row["job_type"], row["job_key"], row["answer_id"], bool(row["error"]), row["attempt"])
    return said == kept and payload.encode(letter.data) == row["data"]


def _is_settled(answer: Row, job: int) -> bool:
    return bool(answer["job"] == job and answer["state"] == SETTLED)


def _is_unread(answer: Row) -> bool:
    """Its job's answer handler failed with it for as long as it may."""
    return bool(answer["state"] == LATE and answer["note"].startswith("its answer handler failed"))


def _is_for(answer: Row, row: Row) -> bool:
    return row["job_type"] != FENCED or answer["attempt"] in (0, row["attempt"])


def _is_undecided(answer: Row, row: Row) -> bool:
    """If it has never waited, its row does not say whether an answer to another attempt is for it."""
    named = answer["attempt"] not in (0, row["attempt"])
    return named and row["wait"] == "" and answer["state"] == BUFFERED and answer["job"] in (0, row["id"])


def _is_given_up(row: Row) -> bool:
    """It is being called off because somebody cancelled it."""
    return bool(row["phase"] == CANCELLING and json.loads(row["wait"])["cause"]["kind"] == "cancelled")


def _outlived(row: Row) -> bool:
    return bool(row["job_type"] == FENCED and row["history"].count("lifetime over"))


def _key(row: Row) -> Key:
    return row["tenant"], row["job_type"], row["job_key"]


def _wait_key(row: Row) -> Key:
    return row["tenant"], row["job_type"], row["wait_key"]


def _keys(row: Row) -> list[Key]:
    """The keys under which answers find a job."""
    return [_key(row), *([_wait_key(row)] if row["wait_key"] else [])]


def _tries(row: Row) -> int:
    return int(json.loads(row["wait"]).get("tries", 0)) if row["wait"] else 0


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
