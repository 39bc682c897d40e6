"""What single people are told of invitations, requests and odd grants: on their first page and by mail. The only writer
of letters; scheduler.telling sends them.

Level-triggered: a pass looks at what stands and writes the letters that are missing, each with its delivery and its
audit row in one transaction, so that it is safe to be killed and to run twice; a constraint holds each to once. What a
letter says is made when it is read, from what stands then, in the reader's language, and only if it is still so and
theirs to know: `holds`.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext as _

from ledger import audit, notices
from ledger.clock import database_now
from ledger.limits import constraint_of
from ledger.models import Delivery, Letter, OddGrant, ProjectRequest, User
from ledger.models.letters import ABOUT, LetterKind
from ledger.vocabulary import Channel, InvitationState, ProjectState

log = logging.getLogger(__name__)
BATCH: Final = 500  # letters of a kind in one pass
RECENT: Final = dt.timedelta(days=14)  # what is older is not told any more
ENDS_SOON: Final = dt.timedelta(days=3)
SHOWN: Final = 10
MOST_A_DAY: Final = 20  # letters of a kind that one person's acts bring to another: what is more waits
DAY: Final = dt.timedelta(days=1)
DECIDED: Final = (
    "SELECT r.id, u.id, NULL::bigint FROM ledger_projectrequest r JOIN ledger_user u ON u.id = r.by_id AND u.is_active "
    "WHERE r.state = %(kind)s AND r.decided_at > %(now)s - %(recent)s"
)
DUE: Final[Mapping[LetterKind, str]] = {  # (thing, person, whose act it is where that counts), told or not
    LetterKind.INVITED: (  # of one project once a day, however often it is taken back and made anew
        "SELECT i.id, u.id, i.by_id FROM ledger_invitation i JOIN ledger_user u ON u.id = i.user_id AND u.is_active "
        "JOIN ledger_project p ON p.id = i.project_id AND p.state <> 'ended' "
        "WHERE i.state = 'open' AND i.expires_at > %(now)s AND NOT EXISTS (SELECT FROM ledger_letter l "
        "JOIN ledger_invitation o ON o.id = l.invitation_id WHERE l.to_id = u.id AND o.project_id = i.project_id "
        "AND o.id <> i.id AND l.at > %(now)s - %(day)s)"
    ),
    # whose verdict counts: as RequestQuerySet.decided_by, with which a test compares it
    LetterKind.TO_DECIDE: (
        "SELECT * FROM (SELECT r.id, u.id, r.by_id FROM ledger_projectrequest r "
        "JOIN ledger_user u ON u.is_active AND u.id <> r.by_id "
        "AND (u.site_role = 'admin' OR u.site_role = 'manager' AND r.kind <> 'join') "
        "WHERE r.state = 'open' AND r.expires_at > %(now)s UNION SELECT r.id, u.id, r.by_id "
        "FROM ledger_projectrequest r "
        "JOIN ledger_membership m ON m.project_id = r.project_id AND m.role IN ('owner', 'manager') "
        "JOIN ledger_user u ON u.id = m.user_id AND u.is_active AND u.id <> r.by_id "
        "WHERE r.state = 'open' AND r.expires_at > %(now)s AND r.kind = 'join') AS w (request, judge, author) "
        "WHERE NOT EXISTS (SELECT FROM ledger_requestverdict v WHERE v.request_id = w.request AND v.by_id = w.judge)"
    ),
    LetterKind.COMMENTED: (
        "SELECT c.id, u.id, c.by_id FROM ledger_requestcomment c JOIN ledger_projectrequest r ON r.id = c.request_id "
        "JOIN ledger_user u ON u.id = r.by_id AND u.is_active AND u.id <> c.by_id WHERE c.at > %(now)s - %(recent)s"
    ),
    LetterKind.APPROVED: DECIDED,
    LetterKind.REFUSED: DECIDED,
    LetterKind.EXPIRED: DECIDED,
    LetterKind.GRANT_GIVEN: (
        "SELECT g.id, u.id, NULL::bigint FROM ledger_oddgrant g JOIN ledger_user u ON u.id = g.user_id AND u.is_active "
        "WHERE g.period @> %(now)s"
    ),
    LetterKind.GRANT_ENDS: (
        "SELECT g.id, u.id, NULL::bigint FROM ledger_oddgrant g JOIN ledger_user u ON u.id = g.user_id AND u.is_active "
        "WHERE g.period @> %(now)s AND upper(g.period) <= %(now)s + %(soon)s "
        "AND upper(g.period) - lower(g.period) > %(soon)s"
    ),
    LetterKind.GRANT_OVER: (  # where nothing gives it on, as _over says
        "SELECT g.id, u.id, NULL::bigint FROM ledger_oddgrant g JOIN ledger_user u ON u.id = g.user_id AND u.is_active "
        "AND (u.site_role = 'researcher' OR g.zone_id IS NOT NULL AND u.site_role NOT IN ('admin', 'operator')) "
        "WHERE upper(g.period) <= %(now)s AND upper(g.period) > %(now)s - %(recent)s "
        "AND NOT EXISTS (SELECT FROM ledger_oddgrant n WHERE n.user_id = u.id AND n.id <> g.id "
        "AND (n.id > g.id AND (n.zone_id = g.zone_id OR n.department_id = g.department_id) OR n.period @> %(now)s "
        "AND n.department_id = ANY (ledger_department_chain(g.department_id))))"
    ),
}
# With how many letters of that author the person was brought within the day; those after the last that was looked at.
MISSING: Final = """
WITH due (thing, person, author) AS ({}), missing AS MATERIALIZED (
  SELECT * FROM due WHERE (thing, person) > (%(thing)s, %(person)s) AND NOT EXISTS (
    SELECT FROM ledger_letter l WHERE l.to_id = due.person AND l.kind = %(kind)s
      AND coalesce(l.invitation_id, l.request_id, l.comment_id, l.grant_id) = due.thing)
), told AS (
  SELECT l.to_id AS person, coalesce(i.by_id, r.by_id, c.by_id) AS author, count(*) AS letters FROM ledger_letter l
  LEFT JOIN ledger_invitation i ON i.id = l.invitation_id LEFT JOIN ledger_projectrequest r ON r.id = l.request_id
  LEFT JOIN ledger_requestcomment c ON c.id = l.comment_id
  WHERE l.to_id IN (SELECT person FROM missing WHERE author IS NOT NULL) AND l.kind = %(kind)s
    AND l.at > %(now)s - %(day)s GROUP BY 1, 2
)
SELECT thing, person, author, coalesce(letters, 0) FROM missing LEFT JOIN told USING (person, author)
WHERE coalesce(letters, 0) < %(most_a_day)s ORDER BY 1, 2 LIMIT %(most)s
"""


class Missing(NamedTuple):
    """A letter that is to be written. `told`: how many of the kind the author's acts brought within a day."""

    thing: int
    person: int
    author: int | None
    told: int


def write_due(now: dt.datetime | None = None) -> dict[str, int]:
    """Write what is missing, each letter on its own: an odd one stops no other. Returns counts."""
    counts = {"letters": 0, "odd": 0}
    moment = now or database_now()
    for kind in LetterKind:
        found = _write_kind(kind, moment)
        counts = {name: counts[name] + found[name] for name in counts}
    return counts


def _write_kind(kind: LetterKind, now: dt.datetime) -> Counter[str]:
    """Those of a kind, the oldest first; what can't be written, or would be too many of one person, stands in nobody
    else's way."""
    counts, brought = Counter[str](), Counter[tuple[int, int | None]]()
    last: Missing | None = None
    while counts["letters"] < BATCH and (found := _missing(kind, now, last)):
        for last in found:
            pair = last.person, last.author
            if last.author is not None and last.told + brought[pair] >= MOST_A_DAY:
                continue
            try:
                written = _write(kind, last.thing, last.person, now)
            except Exception:  # whatever it is: the next pass looks again
                log.exception("no %s letter of %d to %d", kind, last.thing, last.person)
                counts["odd"] += 1
            else:
                brought[pair] += written
                counts["letters"] += written
    return counts


def _missing(kind: LetterKind, now: dt.datetime, last: Missing | None = None) -> list[Missing]:
    """The next ones after this."""
    values: dict[str, Any] = {"kind": kind, "now": now, "recent": RECENT, "soon": ENDS_SOON, "day": DAY, "most": BATCH}
    values |= {"most_a_day": MOST_A_DAY, "thing": last.thing if last else 0, "person": last.person if last else 0}
    with connection.cursor() as cursor:
        cursor.execute(MISSING.format(DUE[kind]), values)
        return [Missing(*row) for row in cursor.fetchall()]


def _write(kind: LetterKind, thing: int, person: int, now: dt.datetime) -> int:
    """1, or 0 when another pass was first."""
    try:
        with transaction.atomic(durable=True):
            to = User.objects.get(pk=person)
            letter = Letter.objects.create(to=to, kind=kind, at=now, **{f"{ABOUT[kind]}_id": thing})
            state, error = notices.state_of(Channel.MAIL, to)
            Delivery.objects.create(
                letter=letter, channel=Channel.MAIL, to=to, state=state, due_at=now, last_error=error
            )
            after = {"to": to.username, "kind": kind, ABOUT[kind]: thing}
            audit.record(actor=None, via="task", verb="letter.written", target=letter, after=after, at=now)
    except IntegrityError as error:
        if constraint_of(error) != "one_letter_of_a_thing":
            raise
        return 0
    return 1


# -- reading -----------------------------------------------------------------------------------------------------------


def with_things(letters: Any) -> Any:
    """A queryset of letters with all that their words are made of, and whether a right was given again since."""
    place = Q(zone=OuterRef("grant__zone")) | Q(department=OuterRef("grant__department"))
    newer = OddGrant.objects.filter(place, user=OuterRef("to"), pk__gt=OuterRef("grant"))
    return letters.annotate(given_again=Exists(newer)).select_related(
        "to",
        "invitation__project",
        "invitation__by",
        "request__project",
        "request__by",
        "comment__request",
        "comment__by",
        "grant__zone",
        "grant__department",
    )


def shown_to(user: User, now: dt.datetime) -> list[Letter]:
    """The newest that still hold. Invitations and what waits for a verdict are left out: the page lists those
    themselves."""
    rows = Letter.objects.filter(to=user, at__gt=now - RECENT)
    listed = (LetterKind.INVITED, LetterKind.TO_DECIDE)
    found = list(with_things(rows.exclude(kind__in=listed)).order_by("-pk")[: 2 * SHOWN])
    for letter in found:
        letter.to = user  # whose rights are read once
    return [letter for letter in found if holds(letter, now)][:SHOWN]


def holds(letter: Letter, now: dt.datetime) -> bool:
    """Whether it is still so, and still its reader's to know."""
    if not letter.to.is_active:
        return False
    return STILL_SO[LetterKind(letter.kind)](letter, now)


def _invited(letter: Letter, now: dt.datetime) -> bool:
    invitation = _there(letter.invitation)
    open_still = invitation.state == InvitationState.OPEN and invitation.expires_at > now
    return bool(open_still and invitation.project.state != ProjectState.ENDED)


def _to_decide(letter: Letter, now: dt.datetime) -> bool:
    rows = ProjectRequest.objects.decided_by(letter.to).filter(pk=request_of(letter).pk, expires_at__gt=now)
    return bool(rows.exists())


def _lasts(letter: Letter, now: dt.datetime) -> bool:
    return bool(_there(letter.grant).period.upper > now)


def _over(letter: Letter, now: dt.datetime) -> bool:
    """Not where a newer grant is there, which speaks for itself, or something else gives the same."""
    grant, to = _there(letter.grant), letter.to
    given = to.operates or grant.zone_id in to.operated_zones if grant.zone_id else to.audits(grant.department_id)
    return not given and not letter.given_again


def _always(letter: Letter, now: dt.datetime) -> bool:
    """What happened to one's own request stays so."""
    return True


STILL_SO: Final[Mapping[LetterKind, Callable[[Letter, dt.datetime], bool]]] = {
    LetterKind.INVITED: _invited,
    LetterKind.TO_DECIDE: _to_decide,
    LetterKind.COMMENTED: _always,
    LetterKind.APPROVED: _always,
    LetterKind.REFUSED: _always,
    LetterKind.EXPIRED: _always,
    LetterKind.GRANT_GIVEN: _lasts,
    LetterKind.GRANT_ENDS: _lasts,
    LetterKind.GRANT_OVER: _over,
}


def _there(thing: Any) -> Any:
    """What a letter of its kind is about; a constraint holds it to be there."""
    if thing is None:
        raise ValueError("a letter about nothing")
    return thing


def request_of(letter: Letter) -> ProjectRequest:
    found: ProjectRequest = _there(letter.comment.request if letter.comment else letter.request)
    return found


def headline(letter: Letter) -> str:
    """What it says, in one sentence: the subject of a mail, the line of a page."""
    kind = LetterKind(letter.kind)
    if kind == LetterKind.INVITED:
        invitation = _there(letter.invitation)
        values = {"project": invitation.project.title or invitation.project.slug}
        return _("You are invited into project %(project)s.") % values
    if letter.grant is not None:
        return _of_grant(letter)
    request = request_of(letter)
    values = {"n": request.pk, "by": letter.comment.by.username if letter.comment else request.by.username}
    texts = {
        LetterKind.TO_DECIDE: _("Request %(n)d of %(by)s waits for your decision."),
        LetterKind.COMMENTED: _("%(by)s has commented on your request %(n)d."),
        LetterKind.APPROVED: _("Your request %(n)d is approved."),
        LetterKind.REFUSED: _("Your request %(n)d is refused."),
        LetterKind.EXPIRED: _("Nobody decided your request %(n)d in time; it has expired."),
    }
    return texts[kind] % values


def _of_grant(letter: Letter) -> str:
    grant = _there(letter.grant)
    values = {"place": (grant.zone or grant.department).title, "until": _moment(grant.period.upper)}
    operates = grant.zone is not None
    if letter.kind == LetterKind.GRANT_OVER:
        text = (
            _("You no longer operate zone %(place)s.") if operates else _("You no longer audit department %(place)s.")
        )
    elif letter.kind == LetterKind.GRANT_ENDS:
        text = (
            _("Your right to operate zone %(place)s ends soon: at %(until)s.")
            if operates
            else _("Your right to audit department %(place)s ends soon: at %(until)s.")
        )
    else:
        text = (
            _("You operate zone %(place)s until %(until)s.")
            if operates
            else _("You audit department %(place)s until %(until)s.")
        )
    return text % values


def _moment(moment: dt.datetime) -> str:
    return f"{moment.astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"


def meaning(letter: Letter) -> str:
    """What follows from it and what its reader can do."""
    kind = LetterKind(letter.kind)
    if kind == LetterKind.INVITED:
        by = _there(letter.invitation).by
        values = {"by": by.username if by else "—", "at": _moment(_there(letter.invitation).expires_at)}
        return _("%(by)s asks you in. You may accept or decline on your first page until %(at)s.") % values
    return str(MEANINGS[kind]())


MEANINGS: Final[Mapping[LetterKind, Callable[[], str]]] = {
    LetterKind.TO_DECIDE: lambda: _("Its page says what would change. One refusal refuses it."),
    LetterKind.COMMENTED: lambda: _("Read and answer it on the request's page."),
    LetterKind.APPROVED: lambda: _("What you asked for stands from now on; the request's page says what changed."),
    LetterKind.REFUSED: lambda: _("The request's page says why. You may ask again."),
    LetterKind.EXPIRED: lambda: _("Nothing was changed. You may ask again."),
    LetterKind.GRANT_GIVEN: lambda: _(
        "A site admin gave you this right; it ends by itself. Your account page lists it."
    ),
    LetterKind.GRANT_ENDS: lambda: _("Ask a site admin if you need it for longer."),
    LetterKind.GRANT_OVER: lambda: _("It gives nothing any more. What you did stays done."),
}
