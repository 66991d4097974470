-- Runs of agents: started once and ended once.
CREATE TABLE runs (
	n      INTEGER PRIMARY KEY, -- the order of starting
	id     TEXT NOT NULL UNIQUE CHECK (id <> ''),
	agent  TEXT NOT NULL CHECK (agent <> ''),
	status TEXT NOT NULL CHECK (status IN ('running', 'done', 'invalid', 'timeout', 'cancelled', 'killed', 'SKIPPED', 'failed')),
	idem   TEXT NOT NULL, -- hash of the idempotency key with whose it is; '': none
	body   BLOB NOT NULL,
	entry  INTEGER NOT NULL,
	mac    BLOB NOT NULL
);
CREATE UNIQUE INDEX runs_idem ON runs (idem) WHERE idem <> '';
CREATE INDEX runs_agent ON runs (agent, n);
CREATE INDEX runs_running ON runs (n) WHERE status = 'running';

CREATE TRIGGER runs_final BEFORE UPDATE ON runs WHEN OLD.status <> 'running' AND NEW.body <> OLD.body
BEGIN SELECT RAISE(ABORT, 'a run that has ended is final'); END;
CREATE TRIGGER runs_delete BEFORE DELETE ON runs
BEGIN SELECT RAISE(ABORT, 'runs are kept'); END;
