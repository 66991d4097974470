-- What waits is read by risk, then by deadline, without reading the bodies of all that waits. Nothing is decided by this order.
CREATE INDEX approvals_urgent ON approvals (
	CASE WHEN json_valid(CAST(body AS TEXT)) THEN coalesce(instr('CRITICAL HIGH MEDIUM LOW', json_extract(CAST(body AS TEXT), '$.risk')), 0) ELSE 0 END, expires, n
) WHERE state IN ('pending', 'deferred');
