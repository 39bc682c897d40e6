-- The lines behind a balance: what balance.sql sums up, one by one. Stands behind its shared part; see lines.py.
-- A branch that the account can't come from is cut away by the planner, with all that only it needs.
, share_line AS (
  SELECT p.account, p.share_id AS id, p.attempt_id, NULL::bigint AS hold_id, p.project_id, p.zone_id, p.node_id,
         p.card_id, p.model, p.form, p.size, p.mib, 1 AS cards, p.since AS lo, p.until AS hi,
         p.mib * (p.until - p.since) AS amount, p.mib * (p.until - p.since) / p.size::numeric AS card_seconds,
         %(visible)s::bigint[] IS NOT NULL AND NOT p.project_id = ANY (%(visible)s::bigint[]) AS hidden
  FROM part p WHERE p.until > p.since
),
-- several holds at once: the one that began first has the memory
held_part AS (
  SELECT DISTINCT ON (r.frame_id, r.lo) h.hold_id, r.card_id, r.zone_id, r.model, r.size, r.mib, r.lo, r.hi
  FROM rest r JOIN held h ON h.frame_id = r.frame_id AND h.lo <= r.lo AND h.hi >= r.hi
  WHERE r.account = 'held' ORDER BY r.frame_id, r.lo, h.began, h.hold_id
),
hold_line AS (
  SELECT 'held' AS account, hold_id AS id, NULL::bigint AS attempt_id, hold_id, NULL::bigint AS project_id,
         CASE WHEN min(coalesce(zone_id, 0)) = max(coalesce(zone_id, 0)) THEN min(zone_id) ELSE -1 END AS zone_id,
         NULL::bigint AS node_id, NULL::bigint AS card_id, CASE WHEN min(model) = max(model) THEN min(model) END AS model,
         NULL::text AS form, CASE WHEN min(size) = max(size) THEN min(size) END AS size, NULL::bigint AS mib,
         count(DISTINCT card_id)::int AS cards, min(lo) AS lo, max(hi) AS hi, sum(mib * (hi - lo)) AS amount,
         sum(mib * (hi - lo) / size::numeric) AS card_seconds, false AS hidden
  FROM held_part GROUP BY hold_id
),
cell_line AS (
  SELECT account, coalesce(zone_id, 0) AS id, NULL::bigint, NULL::bigint, NULL::bigint, zone_id, NULL::bigint,
         NULL::bigint, model, NULL::text, size, NULL::bigint, NULL::int, (SELECT lo FROM win), (SELECT hi FROM win),
         sum(amount) AS amount, sum(amount) / size::numeric, false
  FROM total WHERE account IN ('free', 'stranded', 'headroom') GROUP BY account, zone_id, model, size
  HAVING sum(amount) <> 0
),
line AS (
  SELECT * FROM share_line
  WHERE (%(account)s::text IS NULL OR account = %(account)s::text)
    AND (%(account)s::text IS NULL OR %(account)s::text IN ('used', 'cleaning'))
  UNION ALL
  SELECT * FROM hold_line
  WHERE (%(account)s::text IS NULL OR %(account)s::text = 'held') AND NOT %(shares_only)s::boolean
  UNION ALL
  SELECT * FROM cell_line
  WHERE (%(account)s::text IS NULL OR account = %(account)s::text) AND NOT %(shares_only)s::boolean
    AND (%(account)s::text IS NULL OR %(account)s::text IN ('free', 'stranded', 'headroom'))
),
named AS (
  SELECT l.*, CASE WHEN l.hidden THEN %(others)s ELSE p.slug END AS project,
         CASE WHEN l.zone_id = -1 THEN '' ELSE coalesce(z.slug, %(nowhere)s) END AS zone,
         n.hostname AS node, c.uuid AS card
  FROM line l LEFT JOIN ledger_project p ON p.id = l.project_id LEFT JOIN ledger_zone z ON z.id = l.zone_id
  LEFT JOIN ledger_node n ON n.id = l.node_id LEFT JOIN ledger_card c ON c.id = l.card_id
),
chosen AS (
  SELECT * FROM named
  WHERE (%(owner)s::text IS NULL OR project = %(owner)s::text) AND (%(form)s::text IS NULL OR form = %(form)s::text)
    AND (%(split)s::text IS NULL OR NOT coalesce(
      CASE %(split)s::text WHEN 'zone' THEN zone WHEN 'model' THEN model WHEN 'form' THEN form ELSE project END, '')
      = ANY (%(but)s::text[]))
),
-- who may not see the project gets no job of it
page AS (
  SELECT page.*, count(*) OVER () AS lines, sum(amount) OVER () AS total, sum(card_seconds) OVER () AS total_seconds
  FROM chosen AS page ORDER BY {order} LIMIT %(limit)s OFFSET %(offset)s
)
SELECT lines, total, total_seconds, account, project, j.id, j.name, node, card, zone, model, form, h.kind, h.reason,
       size, mib, cards, lo, hi, amount, card_seconds
FROM page LEFT JOIN ledger_attempt t ON t.id = page.attempt_id AND NOT page.hidden
LEFT JOIN ledger_job j ON j.id = t.job_id LEFT JOIN ledger_hold h ON h.id = page.hold_id
ORDER BY {order}
