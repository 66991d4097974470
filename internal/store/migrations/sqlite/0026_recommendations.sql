-- What agents recommended, apart from everything that it is about.
CREATE TABLE recommendations (
	n     INTEGER PRIMARY KEY, -- the order of recommending
	id    TEXT NOT NULL UNIQUE CHECK (id <> ''),
	agent TEXT NOT NULL CHECK (agent <> ''),
	state TEXT NOT NULL CHECK (state IN ('advice', 'blocked', 'pending', 'accepted', 'carried_out', 'failed', 'rejected', 'expired', 'superseded')),
	body  BLOB NOT NULL,
	entry INTEGER NOT NULL,
	mac   BLOB NOT NULL
);
CREATE INDEX recommendations_agent ON recommendations (agent, n);
CREATE INDEX recommendations_state ON recommendations (state, n);

CREATE TRIGGER recommendations_final BEFORE UPDATE ON recommendations WHEN OLD.state IN ('accepted', 'carried_out', 'failed', 'rejected', 'expired', 'superseded') AND NEW.body <> OLD.body
BEGIN SELECT RAISE(ABORT, 'a recommendation that was answered is final'); END;
CREATE TRIGGER recommendations_delete BEFORE DELETE ON recommendations
BEGIN SELECT RAISE(ABORT, 'recommendations are kept'); END;
