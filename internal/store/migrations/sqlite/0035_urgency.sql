-- What waits is read by risk, then by deadline, without reading the bodies of all that waits. Nothing is decided by this column.
ALTER TABLE approvals ADD COLUMN urgency INTEGER GENERATED ALWAYS AS (
	CASE WHEN NOT json_valid(CAST(body AS TEXT)) THEN 0 ELSE
		CASE json_extract(CAST(body AS TEXT), '$.risk') WHEN 'CRITICAL' THEN 0 WHEN 'HIGH' THEN 1 WHEN 'MEDIUM' THEN 2 WHEN 'LOW' THEN 3 ELSE 0 END
	END) VIRTUAL;
CREATE INDEX approvals_urgent ON approvals (urgency, expires, n) WHERE state IN ('pending', 'deferred');
