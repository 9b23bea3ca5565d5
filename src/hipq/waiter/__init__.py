"""Messages for SQS, any time ahead: what is further out than SQS can delay is kept in DynamoDB until it is due."""

from hipq.waiter.item import Scheduled
from hipq.waiter.message import Message
from hipq.waiter.poller import Polled
from hipq.waiter.sending import Sent
from hipq.waiter.waiter import Waiter

__all__ = ["Message", "Polled", "Scheduled", "Sent", "Waiter"]
