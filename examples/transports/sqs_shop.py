"""Amazon SQS: requests in one queue, answers in another.

    python examples/transports/bank.py sqs
    python examples/transports/buy.py 'sqs://...'        # as the bank says

Region and credentials are found where boto3 always looks: $AWS_DEFAULT_REGION, ~/.aws, the machine's role.
$HIPQ_SQS_URL may say them too, sqs://?region=eu-west-1. Queues must be there. One whose name ends with .fifo keeps
each key in order.
"""

from __future__ import annotations

from typing import Any

from hipq import Answer, Failed, Hipq, Job, Ok, backoff

app = Hipq("sqs_shop")
orders = app.queue("orders", throttle_limit=100)

charge = orders.request(
    "charge",
    to="sqs://payments-out",
    answers="sqs://payments-in?visibility=120",  # after a crash, a message comes again when so many seconds are over
    key="reference",
    answer_id="event",  # without this: the MessageId
    error=lambda message: message.json["status"] == "busy",  # the work failed: for the retry handler
    timeout=30,
    retry=backoff(attempts=5, base=0.5),
)


@charge.answered
def settled(job: Job[Any], answer: Answer) -> Ok | Failed:
    status = answer.data["status"]
    return Ok({"status": status, "amount": job.data["amount"]}) if status == "paid" else Failed(status)
