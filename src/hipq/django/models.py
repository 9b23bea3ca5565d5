"""`Job`, for the admin: it has permissions, a log and a place in the menu. Jobs themselves are in hipq's own tables,
and Django asks no table of this model for anything."""

from __future__ import annotations

from typing import Any

from django.db import models


class NoRows(models.Manager):
    """So that `dumpdata` finds nothing, where there is no table."""

    def get_queryset(self) -> Any:
        return super().get_queryset().none()


class Job(models.Model):
    id = models.CharField(primary_key=True, max_length=255)
    """The backend's alias, a colon, the job's id."""

    objects = NoRows()

    class Meta:
        managed = False
        base_manager_name = "objects"
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return f"job {self.pk}"
