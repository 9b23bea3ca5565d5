from __future__ import annotations

from django.db import models


class Order(models.Model):
    customer = models.CharField(max_length=50)
    loaves = models.IntegerField()
    baked_at = models.DateTimeField(null=True)
    baking = models.CharField(max_length=64, default="")
    """The id of its task's result."""
