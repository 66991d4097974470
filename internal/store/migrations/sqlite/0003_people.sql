-- When silence permits a question of risk MEDIUM, in microseconds since 1970; NULL where only a person's answer does.
ALTER TABLE approvals ADD COLUMN silence INTEGER;
ALTER TABLE approvals ADD COLUMN agent TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN operation TEXT NOT NULL DEFAULT '';
-- When a person last said anything but yes, in microseconds since 1970: silence permits nothing alike for some time then.
ALTER TABLE approvals ADD COLUMN spoken INTEGER;
CREATE INDEX approvals_agent ON approvals (agent, state, expires);
CREATE INDEX approvals_spoken ON approvals (agent, operation, spoken) WHERE spoken IS NOT NULL;

-- Which questions were about which destination: an argument's value as canonical JSON, or its hash where that is long.
CREATE TABLE approval_destinations (
	destination TEXT NOT NULL,
	n           INTEGER NOT NULL, -- of the approval
	PRIMARY KEY (destination, n)
) WITHOUT ROWID;

-- The approvals that were used up, for good: a row of approvals that was put back as it was before is worth nothing.
CREATE TABLE audit_spent (
	id      TEXT PRIMARY KEY NOT NULL CHECK (id <> ''),
	call_id TEXT NOT NULL CHECK (call_id <> '')
) WITHOUT ROWID;

CREATE TRIGGER audit_spent_update BEFORE UPDATE ON audit_spent
BEGIN SELECT RAISE(ABORT, 'audit_spent is append-only'); END;
CREATE TRIGGER audit_spent_delete BEFORE DELETE ON audit_spent
BEGIN SELECT RAISE(ABORT, 'audit_spent is append-only'); END;
CREATE TRIGGER audit_spent_insert BEFORE INSERT ON audit_spent
WHEN EXISTS (SELECT 1 FROM audit_spent WHERE id = NEW.id)
BEGIN SELECT RAISE(ABORT, 'audit_spent is append-only'); END;

INSERT INTO audit_spent (id, call_id) SELECT id, 'before' FROM approvals WHERE state = 'spent';

-- What an agent has used before: destinations, and definitions of tools. The key is a hash.
CREATE TABLE used (
	key TEXT PRIMARY KEY NOT NULL CHECK (length(key) = 64)
) WITHOUT ROWID;

-- Agents that a person put aside.
CREATE TABLE quarantines (
	agent  TEXT PRIMARY KEY NOT NULL CHECK (agent <> ''),
	since  INTEGER NOT NULL, -- microseconds since 1970
	by     TEXT NOT NULL,
	reason TEXT NOT NULL
) WITHOUT ROWID;
