package store

// Every statement but the schema's. The text is what SQLite and PostgreSQL both take: numbered placeholders, upsert with a
// target, no functions of one engine's own.
const (
	// Numbers in the one statement that every call runs twice would cost the driver ten allocations a call.
	insertEntry   = "INSERT INTO audit_entries (idx, at, kind, call_id, body) VALUES (?, ?, ?, ?, ?)"
	insertTile    = "INSERT INTO audit_tiles (level, n, hashes) VALUES ($1, $2, $3)"
	insertBlock   = "INSERT INTO audit_blocks (n, keys) VALUES ($1, $2)"
	insertPayload = "INSERT INTO audit_payloads (key, bytes) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM audit_payloads WHERE key = $1)"
	insertNote    = "INSERT INTO audit_checkpoints (size, note) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM audit_checkpoints WHERE size >= $1)"

	selectLast     = "SELECT idx, at FROM audit_entries ORDER BY idx DESC LIMIT 1"
	selectTile     = "SELECT hashes FROM audit_tiles WHERE level = $1 AND n = $2"
	selectLeaves   = "SELECT idx, body FROM audit_entries WHERE idx >= $1 AND idx < $2 ORDER BY idx"
	selectAt       = "SELECT at FROM audit_entries WHERE idx = $1"
	selectBlocks   = "SELECT n, keys FROM audit_blocks WHERE n >= $1 ORDER BY n LIMIT $2"
	selectExtent   = "SELECT (SELECT coalesce(max(idx) + 1, 0) FROM audit_entries), (SELECT coalesce(max(n), 0) FROM audit_payloads)"
	selectTiles    = "SELECT level, n FROM audit_tiles"
	selectPayloads = "SELECT key FROM audit_payloads WHERE n <= $1"
	selectPayload  = "SELECT bytes FROM audit_payloads WHERE key = $1"
	selectNote     = "SELECT size, note FROM audit_checkpoints ORDER BY size DESC LIMIT 1"
	updateLowWater = "UPDATE low_water SET idx = $1"
	selectCalls    = "SELECT idx, kind, call_id FROM audit_entries WHERE idx >= (SELECT idx FROM low_water) AND call_id <> '' AND kind IN ('intent', 'outcome') ORDER BY idx"
	insertSession  = "INSERT INTO sessions (id, agent, own, phase, state, version, used_ns, body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
	updateSession  = "UPDATE sessions SET phase = $2, state = $3, version = $4, used_ns = $5, body = $6 WHERE id = $1"
	updateUsed     = "UPDATE sessions SET used_ns = $2 WHERE id = $1"
	selectSession  = "SELECT body, used_ns FROM sessions WHERE id = $1"
	selectOwn      = "SELECT id FROM sessions WHERE agent = $1 AND own = 1 AND state = 'open'"
	selectNewest   = "SELECT id FROM sessions WHERE agent = $1 AND own = 1 ORDER BY n DESC LIMIT 1"
	selectPlace    = "SELECT n FROM sessions WHERE id = $1"
	selectPage     = "SELECT body, used_ns FROM sessions WHERE n < $1 AND ($2 = '' OR state = $2) ORDER BY n DESC LIMIT $3"
	selectTokens   = "SELECT id, hash, kind, subject, agent, roles, created, expires, revoked FROM tokens ORDER BY created, id"
	insertToken    = "INSERT INTO tokens (id, hash, kind, subject, agent, roles, created, expires, revoked) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
	revokeToken    = "UPDATE tokens SET revoked = $2 WHERE id = $1 AND revoked IS NULL"
	selectToken    = "SELECT 1 FROM tokens WHERE id = $1"
	selectPins     = "SELECT operation, hash, definition, pending, pending_def, accepted_by, accepted_at FROM pins ORDER BY operation"
	upsertPin      = "INSERT INTO pins (operation, hash, definition, pending, pending_def, accepted_by, accepted_at) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (operation) DO UPDATE SET hash = excluded.hash, definition = excluded.definition, pending = excluded.pending, pending_def = excluded.pending_def, accepted_by = excluded.accepted_by, accepted_at = excluded.accepted_at"
	selectSwitches = "SELECT body FROM switches"
	selectEpoch    = "SELECT epoch FROM switches"
	upsertSwitches = "INSERT INTO switches (one, epoch, body) VALUES (1, $1, $2) ON CONFLICT (one) DO UPDATE SET epoch = excluded.epoch, body = excluded.body"
	selectVersion  = "SELECT version FROM schema_version"
)
