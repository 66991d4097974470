package npm

import "testing"

// The usual errors of npm are said in words; of any other its own stand there, on one line.
func TestSaid(t *testing.T) {
	for output, want := range map[string]string{
		"npm error code E404\nnpm error 404 Not Found - GET https://x\n": "the registry has no package of this name, or does not show it to you. Is it spelled right?",
		"npm error code ETARGET\nnpm error notarget":                     "the registry has no such version of it.",
		"npm ERR! code ENOTFOUND\n":                                      "the registry can't be reached: its name is not known here.",
		"code E4041\nand more":                                           "npm says: code E4041 and more",
		"":                                                               "npm says: ",
	} {
		if got := (Package{}).said(output); got != want {
			t.Errorf("%q: %q, not %q", output, got, want)
		}
	}
}
