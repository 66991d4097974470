-- Which sessions have a plan that waits for a person, to be found without reading every open one.
ALTER TABLE sessions ADD COLUMN plan_waits INTEGER NOT NULL DEFAULT 0 CHECK (plan_waits IN (0, 1));

UPDATE sessions SET plan_waits = 1 WHERE state = 'open' AND json_extract(CAST(body AS TEXT), '$.plan.state') = 'pending';

CREATE INDEX sessions_plan_waits ON sessions (n) WHERE plan_waits = 1;
