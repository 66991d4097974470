package store

// Every statement but the schema's. SQLite and PostgreSQL both take the text: numbered placeholders, upsert with a
// target, no functions of one engine's own.
const (
	// Numbers in the one statement that every call runs twice would cost the driver ten allocations a call.
	insertEntry   = "INSERT INTO audit_entries (idx, at, kind, call_id, body) VALUES (?, ?, ?, ?, ?)"
	insertTile    = "INSERT INTO audit_tiles (level, n, hashes) VALUES ($1, $2, $3)"
	insertBlock   = "INSERT INTO audit_blocks (n, keys) VALUES ($1, $2)"
	insertPayload = "INSERT INTO audit_payloads (key, bytes) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM audit_payloads WHERE key = $1)"
	insertNote    = "INSERT INTO audit_checkpoints (size, note) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM audit_checkpoints WHERE size >= $1)"

	selectLast        = "SELECT idx, at FROM audit_entries ORDER BY idx DESC LIMIT 1"
	selectTile        = "SELECT hashes FROM audit_tiles WHERE level = $1 AND n = $2"
	selectLeaves      = "SELECT idx, body FROM audit_entries WHERE idx >= $1 AND idx < $2 ORDER BY idx"
	selectBlock       = "SELECT idx, at, kind, call_id, body FROM audit_entries WHERE idx >= $1 AND idx < $2 ORDER BY idx"
	selectAt          = "SELECT at FROM audit_entries WHERE idx = $1"
	selectColumns     = "SELECT at, kind, call_id FROM audit_entries WHERE idx >= $1 AND idx < $2 ORDER BY idx"
	selectBlockKeys   = "SELECT keys FROM audit_blocks WHERE n = $1"
	selectBlocks      = "SELECT n, keys FROM audit_blocks WHERE n >= $1 ORDER BY n LIMIT $2"
	selectExtent      = "SELECT (SELECT coalesce(max(idx) + 1, 0) FROM audit_entries), (SELECT coalesce(max(n), 0) FROM audit_payloads)"
	selectTiles       = "SELECT level, n FROM audit_tiles"
	selectPayloads    = "SELECT key FROM audit_payloads WHERE n <= $1"
	selectPayload     = "SELECT bytes FROM audit_payloads WHERE key = $1"
	selectNote        = "SELECT size, note FROM audit_checkpoints ORDER BY size DESC LIMIT 1"
	selectNoteAt      = "SELECT note FROM audit_checkpoints WHERE size = $1"
	selectReach       = "SELECT coalesce(min(idx), 0), coalesce(max(idx) + 1, 0) FROM audit_entries"
	updateLowWater    = "UPDATE low_water SET idx = $1"
	selectCalls       = "SELECT idx, kind, call_id FROM audit_entries WHERE idx >= $1 AND idx < $2 AND call_id <> '' AND kind IN ('intent', 'outcome') ORDER BY idx"
	updateUsed        = "UPDATE sessions SET used_ns = $2 WHERE id = $1"
	selectGiven       = "SELECT agent, id FROM sessions WHERE own = 0 AND state = 'open' ORDER BY n"
	selectPlace       = "SELECT n FROM sessions WHERE id = $1"
	selectPage        = "WHERE n < $1 ORDER BY n DESC LIMIT $2"
	selectPageOf      = "WHERE n < $1 AND state = $3 ORDER BY n DESC LIMIT $2"
	selectPlans       = "WHERE plan_waits = 1 ORDER BY n DESC LIMIT $1"
	countPlans        = "SELECT count(*) FROM sessions WHERE plan_waits = 1"
	insertDestination = "INSERT INTO approval_destinations (destination, n) SELECT $1, n FROM approvals WHERE id = $2"
	countDrills       = "SELECT count(*), coalesce(sum(CASE WHEN a.state = 'rejected' THEN 1 ELSE 0 END), 0), coalesce(sum(CASE WHEN a.state = 'approved' THEN 1 ELSE 0 END), 0) FROM drills d JOIN approvals a ON a.id = d.id"
	countVotes        = `SELECT count(DISTINCT n), coalesce(sum(vote.value->>'$.decision' = 'approve'), 0), coalesce(sum(vote.value->>'$.decision' = 'reject'), 0), coalesce(sum(vote.value->>'$.own'), 0)
		FROM (SELECT n, CAST(body AS TEXT) AS body FROM approvals WHERE state IN ('approved', 'rejected', 'spent') AND json_array_length(CAST(body AS TEXT), '$.votes') > 0 ORDER BY n DESC LIMIT $1), json_each(body, '$.votes') vote`
	insertEvidence    = "INSERT INTO evidence (session_id, seq, call_id, rules, total, body, entry, mac) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
	selectUsed        = "SELECT 1 FROM used WHERE key = $1"
	selectApprovalFor = "WHERE session = $1 AND call_digest = $2 ORDER BY n DESC LIMIT 1"
	selectAsked       = "SELECT n FROM approvals WHERE id = $1"
	selectOpen        = "SELECT id FROM approvals WHERE session = $1 AND state IN ('pending', 'deferred') AND expires > $2 ORDER BY n LIMIT $3"
	countOpen         = "SELECT count(*) FROM approvals WHERE session = $1 AND state IN ('pending', 'deferred') AND expires > $2"
	countSilent       = "SELECT count(*) FROM approvals WHERE agent = $1 AND state = 'pending' AND silence > $2 AND expires > $2"
	countOpenOfAgent  = "SELECT count(*) FROM approvals WHERE agent = $1 AND state IN ('pending', 'deferred') AND expires > $2"
	upsertPulse       = "INSERT INTO pulse (one, at) VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET at = excluded.at"
	// The row that comes before the wanted ones is read for its MAC alone.
	selectEvidence    = "SELECT session_id, seq, call_id, rules, total, CASE WHEN seq > $2 THEN body END, entry, mac FROM evidence WHERE session_id = $1 AND seq >= $2 ORDER BY seq"
	selectFullBefore  = "SELECT e.session_id FROM evidence e WHERE e.seq = $1 AND NOT EXISTS (SELECT 1 FROM evidence o WHERE o.session_id = e.session_id AND o.seq > $1) ORDER BY e.session_id"
	selectUnforgotten = "SELECT DISTINCT e.session_id FROM evidence e JOIN sessions s ON s.id = e.session_id WHERE s.state = 'closed' ORDER BY e.session_id"
	selectHeads       = "SELECT e.session_id, e.seq, e.entry, e.mac FROM (SELECT session_id, max(seq) AS seq FROM evidence GROUP BY session_id) h JOIN evidence e ON e.session_id = h.session_id AND e.seq = h.seq"
	selectProof       = "SELECT size, digest, was_size, was_digest, used, low_water, layout, mac FROM state_proof"
	upsertProof       = "INSERT INTO state_proof (one, size, digest, was_size, was_digest, used, low_water, layout, mac) VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (one) DO UPDATE SET size = excluded.size, digest = excluded.digest, was_size = excluded.was_size, was_digest = excluded.was_digest, used = excluded.used, low_water = excluded.low_water, layout = excluded.layout, mac = excluded.mac"
	selectLowWater    = "SELECT idx FROM low_water"
	selectVersion     = "SELECT version FROM schema_version"
)
