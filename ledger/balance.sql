-- The balance of each window: every MiB-second of every card in exactly one account. See reports.py.
-- Windows are numbered by `n`; every frame below belongs to one, so they never mix. What stands above the line
-- "-- answer" is shared with lines.sql, which lists what is summed up here.
-- A period counts ceil(upper) - ceil(lower) whole seconds, so any cut of time adds up.
WITH win AS (
  SELECT n, ceil(extract(epoch FROM a))::bigint AS lo, ceil(extract(epoch FROM b))::bigint AS hi,
         tstzrange(a, b) AS span
  FROM unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[]) WITH ORDINALITY AS w (a, b, n)
),
-- where each card sat, cut by zone membership; a stretch without a zone has zone_id NULL
seat AS (
  SELECT win.n, s.card_id, s.node_id, c.model, c.memory_mib::bigint AS mib, s.period * win.span AS period
  FROM ledger_cardseat s JOIN ledger_card c ON c.id = s.card_id JOIN ledger_node n ON n.id = s.node_id CROSS JOIN win
  WHERE s.period && win.span AND n.simulated = %(simulated)s::boolean
    AND (%(model)s::text IS NULL OR c.model = %(model)s::text)
),
zoned AS (
  SELECT s.n, s.card_id, s.node_id, s.model, s.mib, z.zone_id, s.period * z.period AS period
  FROM seat s JOIN ledger_nodezone z ON z.node_id = s.node_id AND z.period && s.period
  UNION ALL
  SELECT s.n, s.card_id, s.node_id, s.model, s.mib, NULL, gap
  FROM seat s CROSS JOIN LATERAL unnest(tstzmultirange(s.period) - coalesce(
    (SELECT range_agg(z.period) FROM ledger_nodezone z WHERE z.node_id = s.node_id), '{}'::tstzmultirange)) AS gap
  -- most seats stay in one zone throughout: they are passed over at once
  WHERE NOT EXISTS (SELECT FROM ledger_nodezone z WHERE z.node_id = s.node_id AND z.period @> s.period)
),
frame AS (
  SELECT row_number() OVER () AS id, f.n, f.card_id, f.node_id, f.model, f.mib, f.zone_id, f.period,
         ceil(extract(epoch FROM lower(f.period)))::bigint AS lo, ceil(extract(epoch FROM upper(f.period)))::bigint AS hi
  FROM zoned f LEFT JOIN ledger_zone z ON z.id = f.zone_id
  WHERE NOT isempty(f.period) AND (%(zone)s::text IS NULL OR coalesce(z.slug, '(none)') = %(zone)s::text)
),
-- what was taken of each frame: used until closing_at, cleaning from there to the end of the period
taken AS (
  SELECT f.id AS frame_id, f.n, f.zone_id, f.node_id, f.card_id, f.model, f.mib AS size, p.id AS project_id, p.slug,
         a.form, a.attempt_id, s.id AS share_id, s.memory_mib::bigint AS mib,
         greatest(f.lo, ceil(extract(epoch FROM lower(s.period)))::bigint) AS lo,
         least(f.hi, ceil(extract(epoch FROM coalesce(a.closing_at, 'infinity'::timestamptz)))) AS turn,
         least(f.hi, ceil(extract(epoch FROM coalesce(upper(s.period), 'infinity'::timestamptz)))) AS hi
  FROM win JOIN ledger_allocation a ON a.period && win.span JOIN ledger_project p ON p.id = a.project_id
  JOIN ledger_cardshare s ON s.allocation_id = a.id
  JOIN frame f ON f.n = win.n AND f.card_id = s.card_id AND f.node_id = s.node_id AND f.period && s.period
),
part AS (
  SELECT t.*, 'used' AS account, lo AS since, greatest(lo, least(turn, hi))::bigint AS until FROM taken t
  UNION ALL
  SELECT t.*, 'cleaning', greatest(lo, turn)::bigint, greatest(lo, turn, hi)::bigint FROM taken t
),
held AS (
  SELECT f.id AS frame_id, h.id AS hold_id, lower(h.period) AS began,
         greatest(f.lo, ceil(extract(epoch FROM lower(h.period)))::bigint) AS lo,
         least(f.hi, ceil(extract(epoch FROM coalesce(upper(h.period), 'infinity'::timestamptz))))::bigint AS hi
  FROM ledger_hold h JOIN frame f ON (h.card_id = f.card_id OR h.node_id = f.node_id) AND f.period && h.period
  WHERE h.kind <> 'link'  -- such a card is given out all the same, to work on one card
),
-- stretches in which the node is given out as blocks or whole: its other cards are forbidden to containers
bound AS (
  SELECT f.id AS frame_id, greatest(f.lo, ceil(extract(epoch FROM lower(a.period)))::bigint) AS lo,
         least(f.hi, ceil(extract(epoch FROM coalesce(upper(a.period), 'infinity'::timestamptz))))::bigint AS hi
  FROM win JOIN ledger_allocation a ON a.period && win.span AND a.form IN ('block', 'whole')
  JOIN frame f ON f.n = win.n AND f.node_id = a.node_id AND f.period && a.period
),
event AS (
  SELECT id AS frame_id, lo AS t, mib AS cap, 0::bigint AS busy, 0 AS holds, 0 AS bonds FROM frame
  UNION ALL SELECT id, hi, -mib, 0, 0, 0 FROM frame
  UNION ALL SELECT frame_id, since, 0, mib, 0, 0 FROM part WHERE until > since
  UNION ALL SELECT frame_id, until, 0, -mib, 0, 0 FROM part WHERE until > since
  UNION ALL SELECT frame_id, lo, 0, 0, 1, 0 FROM held WHERE hi > lo
  UNION ALL SELECT frame_id, hi, 0, 0, -1, 0 FROM held WHERE hi > lo
  UNION ALL SELECT frame_id, lo, 0, 0, 0, 1 FROM bound WHERE hi > lo
  UNION ALL SELECT frame_id, hi, 0, 0, 0, -1 FROM bound WHERE hi > lo
),
moment AS (
  SELECT frame_id, t, sum(cap) AS cap, sum(busy) AS busy, sum(holds) AS holds, sum(bonds) AS bonds
  FROM event GROUP BY frame_id, t
),
stretch AS (
  SELECT frame_id, t AS lo, lead(t) OVER w AS hi, sum(cap) OVER w AS cap, sum(busy) OVER w AS busy,
         sum(holds) OVER w AS holds, sum(bonds) OVER w AS bonds
  FROM moment WINDOW w AS (PARTITION BY frame_id ORDER BY t)
),
rest AS (
  SELECT f.id AS frame_id, f.card_id, f.n, f.zone_id, f.model, f.mib AS size, s.lo, s.hi, (s.cap - s.busy)::bigint AS mib,
         CASE WHEN s.holds > 0 THEN 'held' WHEN s.busy > 0 OR s.bonds > 0 THEN 'stranded' ELSE 'free' END AS account
  FROM stretch s JOIN frame f ON f.id = s.frame_id WHERE s.hi > s.lo AND s.cap > s.busy
),
-- headroom: of what is idle in a (zone, model) cell at each moment, up to its reserve; free cards first
reserve AS (
  SELECT win.n, r.zone_id, r.model, r.mib, greatest(win.lo, ceil(extract(epoch FROM lower(r.period)))::bigint) AS lo,
         least(win.hi, ceil(extract(epoch FROM coalesce(upper(r.period), 'infinity'::timestamptz))))::bigint AS hi
  FROM ledger_headroomreserve r CROSS JOIN win WHERE r.period && win.span AND r.mib > 0
),
-- a cell whose cards differ in size is kept apart by size: the reserve is met from the smallest size on
cell_event AS (
  SELECT n, zone_id, model, lo AS t, CASE account WHEN 'free' THEN mib ELSE 0 END AS free,
         CASE account WHEN 'stranded' THEN mib ELSE 0 END AS stranded, 0::bigint AS wanted, size
  FROM rest WHERE account <> 'held'
  UNION ALL
  SELECT n, zone_id, model, hi, CASE account WHEN 'free' THEN -mib ELSE 0 END,
         CASE account WHEN 'stranded' THEN -mib ELSE 0 END, 0, size
  FROM rest WHERE account <> 'held'
  UNION ALL
  SELECT r.n, r.zone_id, r.model, t.t, 0, 0, t.d, x.size FROM reserve r
    CROSS JOIN LATERAL (VALUES (r.lo, r.mib), (r.hi, -r.mib)) AS t (t, d)
    JOIN (SELECT DISTINCT n, zone_id, model, mib AS size FROM frame) x
      ON x.n = r.n AND x.zone_id = r.zone_id AND x.model = r.model
  WHERE r.hi > r.lo
),
cell_time AS (
  SELECT n, zone_id, model, t FROM cell_event GROUP BY 1, 2, 3, 4
),
cell_size AS (
  SELECT t.n, t.zone_id, t.model, t.t, x.size, coalesce(sum(e.free), 0) AS free, coalesce(sum(e.stranded), 0) AS stranded,
         coalesce(sum(e.wanted), 0) AS wanted
  FROM cell_time t JOIN (SELECT DISTINCT n, zone_id, model, size FROM cell_event) x
    ON x.n = t.n AND x.zone_id = t.zone_id AND x.model = t.model
  LEFT JOIN cell_event e ON e.n = t.n AND e.zone_id = t.zone_id AND e.model = t.model AND e.t = t.t AND e.size = x.size
  WHERE EXISTS (SELECT 1 FROM reserve r WHERE r.n = t.n AND r.zone_id = t.zone_id AND r.model = t.model)
  GROUP BY 1, 2, 3, 4, 5
),
cell AS (
  SELECT n, zone_id, model, size, t AS lo, lead(t) OVER w AS hi, sum(free) OVER w AS free,
         sum(stranded) OVER w AS stranded, sum(wanted) OVER w AS wanted
  FROM cell_size WINDOW w AS (PARTITION BY n, zone_id, model, size ORDER BY t)
),
-- fill the reserve: free memory of all sizes first, then stranded memory of all sizes
filled AS (
  SELECT c.*,
    least(free, greatest(0, wanted - coalesce(sum(free) OVER (f ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)))
      AS from_free,
    sum(free) OVER (PARTITION BY n, zone_id, model, lo) AS all_free,
    coalesce(sum(stranded) OVER (f ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS stranded_before
  FROM cell c WHERE hi > lo WINDOW f AS (PARTITION BY n, zone_id, model, lo ORDER BY size)
),
headroom AS (
  SELECT n, zone_id, model, size, sum(from_free * (hi - lo)) AS from_free,
         sum(least(stranded, greatest(0, wanted - all_free - stranded_before)) * (hi - lo)) AS from_stranded
  FROM filled GROUP BY 1, 2, 3, 4
),
total AS (
  SELECT n, zone_id, model, account, project_id, slug, form, size, sum(mib * (until - since)) AS amount FROM part
    WHERE until > since AND (%(project)s::text IS NULL OR slug = %(project)s::text) GROUP BY 1, 2, 3, 4, 5, 6, 7, 8
  UNION ALL
  SELECT n, zone_id, model, account, NULL, NULL, NULL, size, sum(mib * (hi - lo)) FROM rest
    WHERE %(project)s::text IS NULL GROUP BY 1, 2, 3, 4, 8
  UNION ALL
  SELECT n, zone_id, model, x.account, NULL, NULL, NULL, h.size, x.amount FROM headroom h CROSS JOIN LATERAL (VALUES
    ('headroom', h.from_free + h.from_stranded), ('free', -h.from_free), ('stranded', -h.from_stranded)
  ) AS x (account, amount) WHERE %(project)s::text IS NULL
)
-- answer
SELECT n, zone_id, model, account, project_id, t.slug, form, size, sum(amount)::bigint, z.slug
FROM total t LEFT JOIN ledger_zone z ON z.id = t.zone_id
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 10 HAVING sum(amount) <> 0
