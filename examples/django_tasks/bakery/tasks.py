"""What is done later, by a worker. These are plain Django tasks: nothing in them is hipq's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

try:
    from django.tasks import task
except ModuleNotFoundError:  # before Django 6
    from django_tasks import task

from bakery.models import Order


@task(takes_context=True)
def bake(context: Any, order_id: int) -> int:
    order = Order.objects.get(pk=order_id)
    if order.customer == "Bruno" and context.attempt == 1:
        raise ConnectionError("the oven does not answer")  # it is tried again: see TASKS
    if order.loaves > 100:
        raise ValueError("the oven is not large enough")
    order.baked_at = timezone.now()
    order.save()
    send_mail.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue(order.customer, "Come and get it.")
    return order.loaves


@task(queue_name="mails", priority=-10)
async def send_mail(customer: str, text: str) -> str:
    return f"{customer}: {text}"
