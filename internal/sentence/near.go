package sentence

import (
	"cmp"
	"slices"
	"strings"
)

// Bounds of what is compared and of what is proposed.
const (
	maxNear     = 3
	maxCompared = 64
)

// Near are the names that somebody may have meant who wrote another one, the nearest first: those that differ in a third of the letters at
// most, or begin with what was written. Case doesn't count.
func Near(written string, names []string) []string {
	w := []rune(strings.ToLower(written))
	if len(w) == 0 || len(w) > maxCompared {
		return nil
	}
	type candidate struct {
		name string
		far  int
	}
	var all []candidate
	for _, name := range names {
		n := []rune(strings.ToLower(name))
		if len(n) > maxCompared {
			continue
		}
		far := edits(w, n)
		if far > max(len(w), len(n))/3 && !(len(w) > 2 && strings.HasPrefix(string(n), string(w))) {
			continue
		}
		all = append(all, candidate{name, far})
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.name, b.name)) })
	var near []string
	for _, c := range all[:min(maxNear, len(all))] {
		near = append(near, c.name)
	}
	return near
}

// edits is how many letters have to be added, left out or changed, or exchanged with the next one, to make b of a.
func edits(a, b []rune) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range a {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j, y := range b {
			changed := row[j]
			if x != y {
				changed++
			}
			next[j+1] = min(row[j+1]+1, next[j]+1, changed)
			if i > 0 && j > 0 && x == b[j-1] && a[i-1] == y {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
