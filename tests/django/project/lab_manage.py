"""The project that the behaviour tests run in: with Django 5.2 and django-tasks, or with Django 6."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.environ["DJANGO_SETTINGS_MODULE"] = "lab.settings"
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
