"""Bugs in how answers and jobs find each other."""

from __future__ import annotations

from tests.planted.bug import Bug

AWAITING = "job/wait_transitions.py"
RULES = "job/matching.py"
MATCHING = "stores/inbox_transaction.py"
STORE = "stores/sqlite/store.py"
ANSWERS = "stores/sql/answers.py"
SQL_INBOX = "stores/sql/inbox.py"
SETTLE = "engine/settle.py"
SAVE = "stores/sql/settle.py"
TAKE = "stores/sql/take.py"
PENDING = "stores/sqlite/sql/answer_pending.sql"
ENDED = "stores/sqlite/sql/answer_ended.sql"
TAKEN = "phase=ANSWERED, owner=0, error=NONE,"

DELIVER = (
    "        delivered, _ = self._transaction(work, patient=patient, ready=lambda done: dict.fromkeys(done[1], TOP))\n"
)

ANSWER_BUGS = (
    Bug(
        "a wait does not look into the inbox",
        "answer lost",
        ((MATCHING, "    pending = _pending(inbox, list(looks.values()), {}, now, applied)\n",
          "    pending: dict[int, list[Pending]] = {}\n"),),
    ),
    Bug(
        "a job that fails does not look into the inbox",
        "answer lost",
        ((RULES, "return row if takes(row) and", "return row if row.phase == WAITING and takes(row) and"),),
    ),
    Bug(
        "a copy of an answer that was applied is given to the job too",
        "duplicate",
        ((RULES, "        if one.copy:  # case 3\n", "        if False:\n"),),
    ),
    Bug(
        "a wait looks into the inbox before it has the lock",
        "answer lost",
        (
            (
                STORE,
                "        with self._writing() as sql:\n            turned, _ = self._settled(sql, changes, now)\n",
                "        from hipq.stores.inbox_transaction import match_waiting\n"
                "        with self._reading() as sql:\n"
                "            self.seen = match_waiting(self._inbox(sql), changes, now)\n"
                "        with self._writing() as sql:\n            turned, _ = self._settled(sql, changes, now)\n",
            ),
            (
                "stores/sql/turn.py",
                "        matched = match_waiting(inbox, changes, now)\n",
                "        matched = self.seen\n",
            ),
        ),
    ),
    Bug(
        "answers are acknowledged before the commit",
        "answer lost|duplicate",
        (
            (
                ANSWERS,
                DELIVER,
                "        from hipq.errors import StoreError\n"
                "        told = []\n"
                "        deliver_all = work\n"
                "        def work(sql: Sql) -> tuple[list[Delivered], set[int]]:\n"
                "            told.append(deliver_all(sql))\n"
                "            return told[-1]\n"
                "        try:\n"
                f"    {DELIVER}"
                "        except StoreError:\n"
                "            delivered, _ = told[-1]\n",
            ),
        ),
    ),
    Bug(
        "equal answers to different jobs are taken for one",
        "duplicate",
        (
            (ENDED, "WHERE a.job = f.id AND a.job <> 0\n      AND a.state",
             "WHERE a.job <> 0 AND a.job_key = f.job_key\n      AND a.state"),
        ),
    ),
    Bug(
        "what came before the last job ended is given to the next",
        "late",
        ((PENDING, "AND b.arrived > max(", "AND b.arrived > 0 * max("),),
    ),
    Bug(
        "what comes after a job's end is left for the next",
        "late",
        ((RULES, "    if ended is None:  #", "    if ended is None or not ended.settled:  #"),),
    ),
    Bug(
        "what came too long before its job is given to it",
        "late",
        ((PENDING, " AND b.early_until >= json_extract(wanted.value, '$.create_time')", ""),),
    ),
    Bug(
        "the key of a wait takes the place of the job's own",
        "I6",
        (("stores/sqlite/sql/update.sql", "wait_key = moved.wait_key,",
          "job_key = iif(moved.wait_key = '', job_key, moved.wait_key),"),),
    ),
    Bug(
        "the key of a wait is gone when its job is tried again",
        "wait key",
        (("stores/sqlite/sql/claim.sql", "attempt = attempt + 1,", "attempt = attempt + 1, wait_key = '',"),),
    ),
    Bug(
        "a job waits under a key that another one has",
        "wait key",
        (
            (MATCHING, "    if taken:\n        raise KeyTaken(taken)\n", ""),
            ("stores/sqlite/migrations/0001_jobs.sql", "UNIQUE INDEX {live}_waited", "INDEX {live}_waited"),
        ),
    ),
    Bug(
        "a wait does not look under its own key",
        "answer lost",
        ((SQL_INBOX, "row.job_type, row.answer_keys,", "row.job_type, (row.job_key,),"),),
    ),
    Bug(
        "what comes under the key of a wait that is over is early again",
        "test",  # 400 simulated runs did not come to it
        ((ENDED, "AND wait_key <> ''\n", "AND wait_key <> '' AND 0\n"),),
        "tests/answers/test_cases.py::test_case_08_the_predecessor_may_have_the_key_only_from_its_wait",
    ),
    Bug(
        "a used answer is not marked",
        "I15",
        ((MATCHING, "for one in verdicts if one.used]", "for one in verdicts if not one.change]"),),
    ),
    Bug(
        "what a job has not looked at stays its own after its end",
        "I15",
        ((MATCHING, "inbox.place_leftovers(ended)", "inbox.place_leftovers([])"),),
    ),
    Bug(
        "when its answer handler fails the request is sent again",
        "I15",
        (
            (SETTLE, '_Settled(wait_transitions.unread(execution.row, result.fault, now), JobEvent.ANSWER_FAILED)',
             '_Settled(transitions.errored(execution.row, result.fault, 500, now), "error")'),
        ),
    ),
    Bug(
        "an answer at which its handler failed is used up",
        "I15",
        ((SETTLE, "KEEPS_ITS_ANSWER = (AnswerHandlerFailed, Crashed, GivenBack)", "KEEPS_ITS_ANSWER = (Crashed, GivenBack)"),),  # noqa: E501
    ),
    Bug(
        "the ids of answers are forgotten",
        "I15",
        ((MATCHING, "    twins = _twins(inbox, answers, now)\n", "    twins: dict[int, Pending] = {}\n"),),
    ),
    Bug(
        "an answer is an attempt",
        "I5",
        ((AWAITING, TAKEN, f"{TAKEN} attempt=row.attempt + 1,"),),
    ),
    Bug(
        "an answer asks back what its job held before a retry",
        "I9",
        ((AWAITING, TAKEN, f"{TAKEN} held=row.throttle_factor,"),),
    ),
    Bug(
        "answers are given in reverse order",
        "order",
        ((SQL_INBOX, "sorted(some)", "sorted(some, reverse=True)"),),
    ),
    Bug(
        "nothing is fenced off",
        "fence",
        ((RULES, "attempt != row.attempt and (bool(fence) or", "not row.id and (bool(fence) or"),),
    ),
    Bug(
        "old answers are good until they are swept",
        "ttl",
        (
            (PENDING, "AND b.keep_until > :now AND b.id > :after\n    ORDER",
             "AND :now > 0 AND b.id > :after\n    ORDER"),
            (PENDING, "AND b.keep_until > :now AND b.id > :after\n      AND b.job = 0",
             "AND :now > 0 AND b.id > :after\n      AND b.job = 0"),
        ),
    ),
    Bug(
        "another answer takes the place of the one a job ended with",
        "I15",
        ((RULES, "return Verdict(Answered.CONFLICT, ended.job)", "return Verdict(Answered.MATCHED, ended.job)"),),
    ),
    Bug(
        "a second answer is given to a job that has one",
        "I15",
        ((RULES, "    if row.phase == WAITING:\n", "    if row.phase in (WAITING, 'answered'):\n"),),
    ),
    Bug(
        "a cancelled job takes its answer",
        "I15",
        ((RULES, 'return cause is None or cause.kind != FaultKind.CANCELLED', "return True"),),
    ),
    Bug(
        "a job times out that has its answer",
        "I8",
        (
            (SAVE, "kept = [change for change in some if tokens.get(change.before.id) == change.before.token]",
             "kept = [c for c in some if c.event == 'timed out' or tokens.get(c.before.id) == c.before.token]"),
            ("stores/sqlite/sql/update.sql", "AND {live}.token = moved.token", ""),
        ),
    ),
    Bug(
        "a failing cancel handler is called for ever",
        "I1|I13",
        (
            (SETTLE, "    return _Settled(wait_transitions.cancel_handled(row, fault, order, now), event)",
             '    if fault:\n        return _Settled(transitions.given_back(row, "", False, now), event)\n'
             "    return _Settled(wait_transitions.cancel_handled(row, None, order, now), event)"),
        ),
    ),
    Bug(
        "an answer that its job has is dropped",
        "I15",
        ((ANSWERS, "[state for state in STATES if state != MATCHED]", "list(STATES)"),),
    ),
    Bug(
        "an answer that its job has is pruned",
        "answer lost",
        (("stores/sqlite/sql/answer_prune.sql", " AND state <> {MATCHED}", ""),),
    ),
    Bug(
        "progress prolongs nothing",
        "time-out",
        ((AWAITING, "replace(wait, until=later(now, extend)) if extend else wait", "wait"),),
    ),
    Bug(
        "nobody listens for signs of life",
        "time-out",
        (("job/waiting.py", "return min(self.until, later(now, self.heartbeat)) if self.heartbeat else self.until",
          "return self.until + 0 * now"),),
    ),
    Bug(
        "a job that has its answer times out before the next try",
        "time-out|I15",
        ((AWAITING, "    if wait.tries:\n        return looks_again(row, now)\n", ""),),
    ),
    Bug(
        "answers wait until nothing else can start",
        "I11",
        (
            (
                TAKE,
                "        todo = self._todo(sql, claim) if claim.types and claim.limit > 0 else []\n"
                "        ready = self._ready(sql, claim, claim.limit - len(todo), engine_id, now)\n",
                "        ready = self._ready(sql, claim, claim.limit, engine_id, now)\n"
                "        left = claim._replace(limit=claim.limit - len(ready.ids))\n"
                "        todo = self._todo(sql, left) if left.types and left.limit > 0 else []\n",
            ),
        ),
    ),
)  # fmt: skip
