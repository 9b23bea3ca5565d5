"""A bakery's web site: Django's tasks on hipq, in Django's own database.

    python examples/django_tasks/manage.py migrate     # its tables, and hipq's
    python examples/django_tasks/manage.py day         # orders come in, a worker bakes

The second starts a worker beside it, `manage.py hipq_worker`, as you would on a server; stops it at the end; and says
what became of each order. Tasks are in bakery/tasks.py, what is configured in bakery/settings.py.
"""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "bakery.settings")
execute_from_command_line(sys.argv)
