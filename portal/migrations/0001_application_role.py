"""The application's own database role: it may not rewrite the audit trail, nor delete from the ledger."""

from django.db import migrations

ROLE = "gpu_commons_app"
# never deleted by the application; corrections are new rows
KEPT = [
    "ledger_allocation",
    "ledger_cardshare",
    "ledger_attempt",
    "ledger_job",
    "ledger_hold",
    "ledger_cardseat",
    "ledger_card",
    "ledger_node",
    "ledger_nodezone",
    "ledger_project",
    "ledger_quotagrant",
    "ledger_headroomreserve",
    "scheduler_decision",
    "scheduler_command",
]

CREATE = f"""
DO $$ BEGIN
  IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{ROLE}') THEN
    CREATE ROLE {ROLE} NOLOGIN;
  END IF;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
GRANT {ROLE} TO CURRENT_USER;
GRANT USAGE ON SCHEMA public TO {ROLE};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {ROLE};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {ROLE};
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {ROLE};
REVOKE UPDATE, DELETE, TRUNCATE ON ledger_auditevent, ledger_auditseal FROM {ROLE};
REVOKE DELETE, TRUNCATE ON {", ".join(KEPT)} FROM {ROLE};
REVOKE UPDATE ON ledger_cardshare FROM {ROLE};
REVOKE INSERT, UPDATE, DELETE ON ledger_statetransition, django_migrations FROM {ROLE};
"""
DROP = f"""
ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON TABLES FROM {ROLE};
ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON SEQUENCES FROM {ROLE};
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {ROLE};
REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM {ROLE};
REVOKE ALL ON SCHEMA public FROM {ROLE};
"""


class Migration(migrations.Migration):
    dependencies = [
        ("ledger", "0002_guards"),
        ("scheduler", "0002_command_transitions"),
        ("sessions", "0001_initial"),
        ("guardian", "0001_initial"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]
    operations = [migrations.RunSQL(CREATE, DROP)]
