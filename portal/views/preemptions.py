"""Pre-emption on one page: whom the next round would stop, for whom nodes are kept, and who was stopped lately.

Everybody sees what concerns jobs that they may see; the site roles see all of it. Reads only.
"""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_safe

from ledger.clock import database_now
from portal.api import preemption
from portal.views.gate import signed_in, viewer


@require_safe
@signed_in
def preemptions(request: HttpRequest) -> HttpResponseBase:
    user = viewer(request)
    context = {
        "now": database_now(),
        "round": preemption.next_round_answer(user),
        "claims": preemption.claim_answers(user),
        "lately": preemption.lately_answers(user),
        "most": preemption.MOST_LATELY,
        "off": not settings.PREEMPT_MOST_VICTIMS,
        "min_run_s": settings.PREEMPT_MIN_RUN_S,
        "most_run_s": max(settings.PREEMPT_MOST_RUN_S, settings.PREEMPT_MIN_RUN_S),
        "grace_s": settings.PREEMPT_GRACE_S,
        "kept_s": settings.PREEMPT_KEPT_S,
        "claimants": settings.PREEMPT_CLAIMANTS,
    }
    return render(request, "ops/preemptions.html", context)
