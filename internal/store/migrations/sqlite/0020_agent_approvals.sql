-- Which declaration of each agent people approved: the digest that counts ('' is none yet), and all that was said of it.
CREATE TABLE agent_approvals (
	agent  TEXT    PRIMARY KEY,
	digest TEXT    NOT NULL,
	body   BLOB    NOT NULL,
	entry  INTEGER NOT NULL DEFAULT -1,
	mac    BLOB
);
