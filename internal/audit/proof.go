package audit

import (
	"golang.org/x/mod/sumdb/tlog"

	"sallyport.example/internal/fault"
)

// Inclusion proves that the log of Size entries with RootHash has LeafHash at Index (RFC 6962, 2.1.1). Hashes are base64 in JSON.
type Inclusion struct {
	Index    int64            `json:"index"`
	Size     int64            `json:"size"`
	LeafHash tlog.Hash        `json:"leaf_hash"`
	RootHash tlog.Hash        `json:"root_hash"`
	Hashes   tlog.RecordProof `json:"hashes"`
}

// Consistency proves that the log of Size entries begins with the log of From entries (RFC 6962, 2.1.2).
type Consistency struct {
	From     int64          `json:"from"`
	Size     int64          `json:"size"`
	FromRoot tlog.Hash      `json:"from_root_hash"`
	RootHash tlog.Hash      `json:"root_hash"`
	Hashes   tlog.TreeProof `json:"hashes"`
}

// InclusionProof proves the entry at index in the log of size entries. r must reach as far as size (Snapshot.Hashes).
func InclusionProof(r tlog.HashReader, size, index int64) (Inclusion, error) {
	if size < 1 {
		return Inclusion{}, fault.New(fault.RequestMalformed, "size must be at least 1, not %d", size).At("size")
	}
	if index < 0 || index >= size {
		return Inclusion{}, fault.New(fault.RequestMalformed, "index must be from 0 to %d in a log of %d entries, not %d", size-1, size, index).At("index")
	}
	p := Inclusion{Index: index, Size: size}
	leaf, err := r.ReadHashes([]int64{tlog.StoredHashIndex(0, index)})
	if err != nil {
		return Inclusion{}, unprovable(err)
	}
	p.LeafHash = leaf[0]
	if p.RootHash, err = tlog.TreeHash(size, r); err != nil {
		return Inclusion{}, unprovable(err)
	}
	if p.Hashes, err = tlog.ProveRecord(size, index, r); err != nil {
		return Inclusion{}, unprovable(err)
	}
	return p, nil
}

// ConsistencyProof proves that the log of from entries is the beginning of the log of size entries.
func ConsistencyProof(r tlog.HashReader, from, size int64) (Consistency, error) {
	if from < 1 || from > size {
		return Consistency{}, fault.New(fault.RequestMalformed, "from must be from 1 to %d, not %d", size, from).At("from")
	}
	p := Consistency{From: from, Size: size}
	var err error
	if p.FromRoot, err = tlog.TreeHash(from, r); err != nil {
		return Consistency{}, unprovable(err)
	}
	if p.RootHash, err = tlog.TreeHash(size, r); err != nil {
		return Consistency{}, unprovable(err)
	}
	if p.Hashes, err = tlog.ProveTree(size, from, r); err != nil {
		return Consistency{}, unprovable(err)
	}
	return p, nil
}

func unprovable(err error) error {
	return fault.Wrap(err, fault.AuditUnavailable, "The audit log could not be read for this proof.").
		Try("ask for a size of at most the newest checkpoint's; run \"sallyport audit verify\" if that fails too")
}
