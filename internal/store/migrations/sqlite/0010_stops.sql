-- How many quarantines each agent has had, ended ones included: what people answered about the agent before the newest one counts no more.
CREATE TABLE quarantine_counts (
	agent TEXT PRIMARY KEY NOT NULL CHECK (agent <> ''),
	times INTEGER NOT NULL CHECK (times > 0)
) WITHOUT ROWID;

INSERT INTO quarantine_counts (agent, times) SELECT agent, 1 FROM quarantines;
