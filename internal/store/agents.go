package store

import (
	"context"
	"encoding/json"

	"sallyport.example/internal/agent/approved"
	"sallyport.example/internal/audit"
	"sallyport.example/internal/fault"
)

// AgentApprovals implements approved.Store.
func (r *Reader) AgentApprovals(ctx context.Context) (map[string]approved.Record, error) {
	all := map[string]approved.Record{}
	rows, err := r.whole(ctx, agentApprovalRows, "")
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		var a approved.Record
		if err := json.Unmarshal(blob(row[agentApprovalRows.place("body")]), &a); err != nil {
			return nil, damaged(err)
		}
		all[text(row[0])] = a
	}
	return all, nil
}

// SaveAgentApprovals implements approved.Store.
func (db *DB) SaveAgentApprovals(ctx context.Context, records []approved.Record, entries ...audit.Entry) error {
	bodies := make([][]byte, len(records))
	for i, r := range records {
		var err error
		if bodies[i], err = json.Marshal(r); err != nil {
			return fault.Wrap(err, fault.Internal, "the approval of a declaration can't be written")
		}
	}
	return db.w.do(ctx, &job{run: func(t *tx) error {
		for i, r := range records {
			digest := ""
			if r.InForce != nil {
				digest = r.InForce.Digest
			}
			if err := t.put(agentApprovalRows, r.Agent, digest, bodies[i]); err != nil {
				return err
			}
		}
		return t.appendAll(entries)
	}})
}
