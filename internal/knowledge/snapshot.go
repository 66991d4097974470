package knowledge

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.example/internal/audit"
)

// Snapshot is a list of documents, each in one version, that does not change any more: those that were there after the event Order.
type Snapshot struct {
	ID        string    `json:"snapshot_id"`
	Documents int       `json:"documents"`
	Root      string    `json:"root" doc:"Merkle tree hash (RFC 6962) over the list, in hex"`
	At        time.Time `json:"at"`
	By        string    `json:"by"`
	Order     int64     `json:"order"`
}

// Member is a document in a snapshot.
type Member struct {
	Document *Document
	Version  *Event
}

// Members are the documents that were there after the event with that order, by id: what was deleted, withdrawn or erased by then is not among them.
func Members(documents map[string]*Document, order int64) []Member {
	list := make([]Member, 0, len(documents))
	for _, d := range documents {
		if s, ok := d.AtOrder(order); ok && !s.Gone() {
			list = append(list, Member{d, s.Version})
		}
	}
	slices.SortFunc(list, func(a, b Member) int { return strings.Compare(a.Document.ID(), b.Document.ID()) })
	return list
}

// SnapshotOf is the snapshot with these members.
func SnapshotOf(members []Member, order int64, at time.Time, by string) Snapshot {
	var tree audit.Tree
	for _, m := range members {
		tree.Append(fmt.Appendf(nil, "%s\x00%d\x00%s", m.Document.ID(), m.Version.Version, m.Version.Hash))
	}
	root := tree.Root()
	id := sha256.Sum256(fmt.Appendf([]byte("sallyport snapshot v1\x00"), "%d\x00%d\x00%s", order, len(members), root[:]))
	return Snapshot{ID: "snap_" + hex.EncodeToString(id[:20]), Documents: len(members), Root: hex.EncodeToString(root[:]), At: at, By: by, Order: order}
}
