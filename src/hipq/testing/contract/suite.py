"""Every test of the contract, for a store's test module to import whole."""

from hipq.testing.contract.answers import TestAnswers, TestEarlyAnswers, TestInbox, TestUsedAnswers, TestWaitKeys
from hipq.testing.contract.asking import (
    TestChangingRules,
    TestCron,
    TestEngines,
    TestPages,
    TestTickets,
    throttled,
)
from hipq.testing.contract.bad_rows import TestBadRows
from hipq.testing.contract.claim import TestClaim, TestStage
from hipq.testing.contract.enqueue import TestEnqueue, TestKeys
from hipq.testing.contract.lanes import (
    TestIngest,
    TestLaneClaims,
    TestLanes,
    TestOneNote,
    TestRefusals,
    TestUsage,
    TestWhatIsKept,
)
from hipq.testing.contract.leases import TestLeases, TestOrphans, TestOwned
from hipq.testing.contract.looking import TestFind, TestGet, TestGlance, TestNow, TestOverdue, TestPrune
from hipq.testing.contract.notes import TestAnswersForNoJob, TestAnswersForOneJob, TestNotes
from hipq.testing.contract.payloads import TestLargePayloads
from hipq.testing.contract.registry import TestDroppedQueues, TestQueues, shop
from hipq.testing.contract.rules import TestRules
from hipq.testing.contract.schema import TestChecks, TestMigrations
from hipq.testing.contract.together import TestProcesses, TestThreads, stores
from hipq.testing.contract.transactions import TestUserTransaction, orders
from hipq.testing.contract.turn import TestChildren, TestMoves, TestTokens, TestTurn
from hipq.testing.contract.waking import TestWaking

__all__ = [
    "TestAnswers",
    "TestAnswersForNoJob",
    "TestAnswersForOneJob",
    "TestBadRows",
    "TestChangingRules",
    "TestChecks",
    "TestChildren",
    "TestClaim",
    "TestCron",
    "TestDroppedQueues",
    "TestEarlyAnswers",
    "TestEngines",
    "TestEnqueue",
    "TestFind",
    "TestGet",
    "TestGlance",
    "TestInbox",
    "TestIngest",
    "TestKeys",
    "TestLaneClaims",
    "TestLanes",
    "TestLargePayloads",
    "TestLeases",
    "TestMigrations",
    "TestMoves",
    "TestNotes",
    "TestNow",
    "TestOneNote",
    "TestOrphans",
    "TestOverdue",
    "TestOwned",
    "TestPages",
    "TestProcesses",
    "TestPrune",
    "TestQueues",
    "TestRefusals",
    "TestRules",
    "TestStage",
    "TestThreads",
    "TestTickets",
    "TestTokens",
    "TestTurn",
    "TestUsage",
    "TestUsedAnswers",
    "TestUserTransaction",
    "TestWaitKeys",
    "TestWaking",
    "TestWhatIsKept",
    "orders",
    "shop",
    "stores",
    "throttled",
]  # fmt: skip
