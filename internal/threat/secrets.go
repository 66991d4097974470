package threat

import "slices"

// Secrets returns the secrets that b holds, each once, with JSON escapes undone; nil if it holds none.
func (d *Detector) Secrets(b []byte) (all []string) {
	s := d.scan(b, false)
	defer d.release(s)
	if !s.secret {
		return nil
	}
	for _, h := range s.hits {
		if one := string(s.v[h.start:h.end]); h.kind.secret() && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}
