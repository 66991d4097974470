package threat

// finding is one piece of sensitive data: b[Start:End] of the scanned bytes.
type finding struct {
	Kind, Label string
	Start, End  int
}

// Scan returns what b holds, ordered by Start.
func (d *Detector) Scan(b []byte) []finding {
	s := d.scan(b, false)
	defer d.release(s)
	if len(s.hits) == 0 {
		return nil
	}
	s.settle(b)
	out := make([]finding, len(s.hits))
	for i, h := range s.hits {
		out[i] = finding{h.kind.name(), h.kind.label(), h.start, h.end}
	}
	return out
}
