// Package diff compares two texts line by line.
package diff

// Kind says on which side a line stands.
type Kind string

const (
	Both   Kind = ""
	Before Kind = "del"
	After  Kind = "ins"
)

// compared is how many lines on each side are compared with one another; of longer ones the one side comes whole, and then the other.
const compared = 1000

// Lines gives every line of both sides to add, in order; what is the same on both sides comes once.
func Lines[T any](before, after []T, same func(a, b T) bool, add func(kind Kind, line T)) {
	each := func(kind Kind, lines []T) {
		for _, line := range lines {
			add(kind, line)
		}
	}
	head := 0
	for head < len(before) && head < len(after) && same(before[head], after[head]) {
		head++
	}
	each(Both, before[:head])
	before, after = before[head:], after[head:]
	tail := 0
	for tail < len(before) && tail < len(after) && same(before[len(before)-1-tail], after[len(after)-1-tail]) {
		tail++
	}
	rest := before[len(before)-tail:]
	before, after = before[:len(before)-tail], after[:len(after)-tail]
	if len(before) > compared || len(after) > compared {
		each(Before, before)
		each(After, after)
		each(Both, rest)
		return
	}
	common := make([][]int, len(before)+1) // how many lines of what follows are on both sides
	for i := range common {
		common[i] = make([]int, len(after)+1)
	}
	for i := len(before) - 1; i >= 0; i-- {
		for j := len(after) - 1; j >= 0; j-- {
			if same(before[i], after[j]) {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(before) || j < len(after); {
		switch {
		case i < len(before) && j < len(after) && same(before[i], after[j]):
			add(Both, before[i])
			i, j = i+1, j+1
		case j == len(after) || i < len(before) && common[i+1][j] >= common[i][j+1]:
			add(Before, before[i])
			i++
		default:
			add(After, after[j])
			j++
		}
	}
	each(Both, rest)
}
