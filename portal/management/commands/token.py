"""Print a new API token of a person; only its digest is stored."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from ledger.models import User
from ledger.people import create_token


class Command(BaseCommand):
    help = "Print a new API token of USER (shown once)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user")
        parser.add_argument("--days", type=int, default=None, help="expire after so many days")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            known = ", ".join(User.objects.order_by("username").values_list("username", flat=True)[:20])
            raise CommandError(f"there is no user {options['user']!r}; known are {known}")
        days = options["days"]
        if days is not None and not 1 <= days <= 3650:
            raise CommandError("--days must lie between 1 and 3650")
        self.stdout.write(create_token(user=user, label="command line", days=days, actor=None, via="command"))
