"""Every test of the contract, for a store's test module to import whole."""

from tests.contract.activity import TestActivity, TestFolding
from tests.contract.answers import TestAnswers, TestEarlyAnswers, TestInbox, TestUsedAnswers, TestWaitKeys
from tests.contract.asking import (
    TestChangingRules,
    TestEngines,
    TestPages,
    TestTickets,
    throttled,
)
from tests.contract.audit import TestAuditLog
from tests.contract.bad_rows import TestBadRows
from tests.contract.claim import TestClaim, TestStage
from tests.contract.enqueue import TestEnqueue, TestKeys
from tests.contract.lanes import (
    TestIngest,
    TestLaneClaims,
    TestLanes,
    TestOneNote,
    TestRefusals,
    TestUsage,
    TestWhatIsKept,
)
from tests.contract.leases import TestLeases, TestOrphans, TestOwned
from tests.contract.looking import (
    TestDepth,
    TestFind,
    TestGet,
    TestNow,
    TestOverdue,
    TestPeek,
    TestPrune,
    TestWaitingTypes,
)
from tests.contract.notes import TestAnswersForNoJob, TestAnswersForOneJob, TestNotes
from tests.contract.payloads import TestLargePayloads
from tests.contract.progress import TestProgress
from tests.contract.registry import TestDroppedQueues, TestQueues, shop
from tests.contract.rules import TestRules
from tests.contract.schedules import TestSchedules
from tests.contract.schema import TestChecks, TestMigrations
from tests.contract.together import TestProcesses, TestThreads, stores
from tests.contract.transactions import TestUserTransaction, orders
from tests.contract.turn import TestChildren, TestMoves, TestTokens, TestTurn
from tests.contract.waking import TestWaking
from tests.contract.walking import TestWalking

__all__ = [
    "TestActivity",
    "TestAnswers",
    "TestAnswersForNoJob",
    "TestAnswersForOneJob",
    "TestAuditLog",
    "TestBadRows",
    "TestChangingRules",
    "TestChecks",
    "TestChildren",
    "TestClaim",
    "TestDepth",
    "TestDroppedQueues",
    "TestEarlyAnswers",
    "TestEngines",
    "TestEnqueue",
    "TestFind",
    "TestFolding",
    "TestGet",
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
    "TestPeek",
    "TestProcesses",
    "TestProgress",
    "TestPrune",
    "TestQueues",
    "TestRefusals",
    "TestRules",
    "TestSchedules",
    "TestStage",
    "TestThreads",
    "TestTickets",
    "TestTokens",
    "TestTurn",
    "TestUsage",
    "TestUsedAnswers",
    "TestUserTransaction",
    "TestWaitKeys",
    "TestWaitingTypes",
    "TestWaking",
    "TestWalking",
    "TestWhatIsKept",
    "orders",
    "shop",
    "stores",
    "throttled",
]  # fmt: skip
