package daemon

import "sallyport.example/internal/search"

// openSearch opens the index of what stands in the log, or removes it where it is switched off.
func (d *Daemon) openSearch() (*search.Log, error) {
	if on := d.config().Audit.Search; on != nil && !*on {
		return search.New(d.store, nil), search.Remove(d.o.Data)
	}
	var err error
	if d.index, err = search.Open(d.o.Data, d.store, d.o.Log); err != nil {
		return nil, err
	}
	return search.New(d.store, d.index), nil
}
