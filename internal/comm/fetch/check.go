package fetch

// Check says what is wrong with a request before anything leaves the machine: its own form, and its address under the policy.
func (f *Fetcher) Check(r Request) error {
	if err := f.check(&r); err != nil {
		return err
	}
	return f.web.Check(r.URL)
}
