from __future__ import annotations

from django.db import models


class Note(models.Model):
    """What tasks leave behind, in order."""

    text = models.CharField(max_length=200)
