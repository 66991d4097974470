package console

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"sallyport.example/internal/review"
)

// The measures of the picture of origins, in pixels. It fits on a phone.
const (
	originBox    = 138.0 // width of a source
	originHeight = 30.0
	originGap    = 10.0
	originTo     = 262.0 // left edge of the call
	originCall   = 66.0  // its width
	maxOrigins   = 6
)

// origin is a source of values, with the names of the arguments that came from it.
type origin struct {
	place     string
	arguments []string
	confirmed bool
}

// originsOf groups the values that decide by where they came from, those that nothing confirms last.
func originsOf(r *review.Review) (all []origin) {
	for _, v := range r.Values {
		if !v.Core && v.Verdict == review.Unchecked {
			continue
		}
		o := origin{place: v.Says, confirmed: v.Verdict == review.Confirmed}
		switch {
		case o.confirmed:
		case len(v.Seen) > 0:
			o.place = v.Seen[0].Place
		default:
			o.place = "the agent alone"
		}
		if i := slices.IndexFunc(all, func(a origin) bool { return a.place == o.place && a.confirmed == o.confirmed }); i >= 0 {
			all[i].arguments = append(all[i].arguments, v.Argument)
			continue
		}
		o.arguments = []string{v.Argument}
		all = append(all, o)
	}
	slices.SortStableFunc(all, func(a, b origin) int {
		if a.confirmed == b.confirmed {
			return 0
		}
		if a.confirmed {
			return -1
		}
		return 1
	})
	return all[:min(len(all), maxOrigins)]
}

// originsPicture draws where the values of a call came from: sources on the left, the call on the right, and a line for each, red for what nothing
// confirms.
func originsPicture(r *review.Review) template.HTML {
	all := originsOf(r)
	if len(all) == 0 {
		return ""
	}
	height := float64(len(all))*(originHeight+originGap) - originGap
	p := picture{Class: "origins", ID: "origins", Title: "Where the values came from", Width: int(originTo+originCall) + 2, Height: int(height) + 4}
	var words []string
	for i, o := range all {
		y := 2 + float64(i)*(originHeight+originGap)
		class, is := "origin", "confirmed by"
		if !o.confirmed {
			class, is = "origin unconfirmed", "unconfirmed, from"
		}
		names := strings.Join(o.arguments, ", ")
		words = append(words, fmt.Sprintf("%s: %s %s.", shorten(names, 60), is, shorten(o.place, 80)))
		p.rect(class, shorten(o.place, 80), 1, y, originBox, originHeight)
		p.text("origin-name", 7, y+19, shorten(o.place, 21))
		p.path("origin-line"+strings.TrimPrefix(class, "origin"), "", "M%s %sC%s %s %s %s %s %s", originBox+1, y+originHeight/2, originBox+60, y+originHeight/2, originTo-60, 2+height/2, originTo, 2+height/2)
		p.text("origin-argument", originBox+8, y+originHeight/2-4, shorten(names, 16))
	}
	p.rect("origin-call", "", originTo, 2+height/2-16, originCall, 32)
	p.text("origin-does", originTo+6, 2+height/2+4, shorten(strings.ToLower(firstWord(r.Does)), 9))
	p.Desc = strings.Join(words, " ")
	return p.render()
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}
