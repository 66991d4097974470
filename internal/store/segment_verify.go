package store

import (
	"fmt"
	"strings"

	"sallyport.example/internal/audit"
	"sallyport.example/internal/segment"
)

// Start implements audit.StateSource.
func (s *Source) Start() (first int64, seal []byte, err error) {
	f := s.r.use()
	defer s.r.done(f)
	if first = f.oldest(); first == 0 {
		return 0, nil, nil
	}
	// The oldest file here begins with the checkpoint at the end of the one before.
	db, end := f.newest, f.first
	for _, p := range f.older {
		if segment.Base(p.First) == first {
			db, end = p.db, p.First
		}
	}
	if found, err := oneOf(s.ctx, db, selectNoteAt, []any{end}, &seal); err != nil || !found {
		return first, nil, fmt.Errorf("it is not in the file with entry %d: %w", end, err)
	}
	return first, seal, nil
}

// compareSeal compares the state with the digest that was signed when the archived part of the log ended, without what the entries since did.
func (s *Source) compareSeal(f *audit.Fold) (notes []string) {
	h := s.held
	if h.key == nil {
		return []string{fmt.Sprintf("Without %s, rows that archived entries made were not compared with anything: any that names such an entry is taken for one.", StateKeyFile)}
	}
	then, err := h.rows.undo(s.Entries, f.Seal.Size, s.size)
	if err != nil || h.key.digestOf(f.Seal.Size, then) != f.Seal.State {
		h.wrong("the rows are not those of the checkpoint at the end of the archived entries with what the entries since then changed")
	}
	return nil
}

// compareSegments compares each file that is not written to any more with the SHA-256 that it was sealed with.
func (s *Source) compareSegments() (notes []string) {
	if err := s.r.inOrder(s.ctx); err != nil {
		s.held.wrong("%s", because(err))
	}
	f := s.r.use()
	defer s.r.done(f)
	var archived []string
	for _, p := range f.older {
		switch {
		case p.db == nil && p.ArchivedTo == "":
			s.held.wrong("the file %s of the log is gone, and no entry says that it was archived", p.where())
		case p.db == nil:
			archived = append(archived, fmt.Sprintf("entries %d to %d: %s (SHA-256 %s)", p.First, p.End-1, p.where(), p.SHA256))
		case p.SHA256 == "":
			notes = append(notes, fmt.Sprintf("%s is not sealed yet: its entries were checked, and its other bytes were not.", p.Name))
		default:
			if size, sum, err := segment.Sum(p.path, nil); err != nil || size != p.Bytes || sum != p.SHA256 {
				s.held.wrong("the file %s is not the one that was sealed: it has %d bytes and the SHA-256 %q, not %d and %q", p.Name, size, sum, p.Bytes, p.SHA256)
			}
		}
	}
	if len(archived) > 0 {
		notes = append(notes, fmt.Sprintf("The log is proved from the checkpoint at %d entries on, and the state with the digest in it. What is archived was not checked (name the folder with --segments): %s.",
			segmentEnd(f), strings.Join(archived, "; ")))
	}
	return notes
}

// segmentEnd is where the part of the log ends that is not here.
func segmentEnd(f *files) int64 {
	for i := len(f.older) - 1; i >= 0; i-- {
		if f.older[i].db == nil {
			return f.older[i].End
		}
	}
	return 0
}
