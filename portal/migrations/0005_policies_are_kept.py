"""Policies, their versions and what they made of jobs are kept: the application's role deletes none of them. That it may
only end a version is held by a trigger; to lock a policy it needs the right to change one."""

from django.db import migrations

ROLE = "gpu_commons_app"
KEPT = "scheduler_jobpolicy, scheduler_policyversion, scheduler_policyuse"
WRITTEN_ONCE = "scheduler_policyuse"


class Migration(migrations.Migration):
    dependencies = [("portal", "0004_receipts_are_kept"), ("scheduler", "0010_job_policies")]
    operations = [
        migrations.RunSQL(
            f"REVOKE DELETE, TRUNCATE ON {KEPT} FROM {ROLE}", f"GRANT DELETE, TRUNCATE ON {KEPT} TO {ROLE}"
        ),
        migrations.RunSQL(f"REVOKE UPDATE ON {WRITTEN_ONCE} FROM {ROLE}", f"GRANT UPDATE ON {WRITTEN_ONCE} TO {ROLE}"),
    ]
