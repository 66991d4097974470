package fetch

import (
	"strings"
	"testing"
)

// Hidden by the element's own style or by what the element is, as the package promises; nothing here needs a style sheet.
func TestHostileInlineHiding(t *testing.T) {
	for _, html := range []string{
		"<p style='clip-path:inset(50%)'>X", "<p style='clip-path:circle(0)'>X", "<p style='clip-path: polygon(0 0,0 0,0 0)'>X", "<p style='clip:rect(1px,1px,1px,1px)'>X",
		"<p style='position:absolute;left:-100vw'>X", "<p style='position:absolute;left:-1000%'>X", "<p style='position:fixed;left:9999px'>X", "<p style='position:absolute;inset:-9999px auto auto -9999px'>X",
		"<p style='margin:-9999px'>X", "<p style='margin:0 0 0 -9999px'>X", "<p style='transform:translateX(-9999px)'>X", "<p style='transform:translate(-9999px,0)'>X", "<p style='transform:scaleX(0)'>X",
		"<p style='transform:scale3d(0,0,0)'>X", "<p style='transform:scale(0.001)'>X", "<p style='scale:0 0'>X", "<p style='translate:-9999px'>X",
		"<p style='color:rgba(0,0,0,0)'>X", "<p style='color:#0000'>X", "<p style='color:#00000000'>X", "<p style='color:rgb(0 0 0 / 0)'>X", "<p style='color:hsla(0,0%,0%,0)'>X",
		"<p style='filter:opacity(0)'>X", "<p style='height:0;overflow:auto'>X", "<p style='height:0;overflow:scroll'>X", "<p style='line-height:0;overflow:hidden;height:0.5px'>X",
		"<p style='max-height:0;overflow-y:hidden'>X",
		"<progress>X</progress>", "<meter>X</meter>", "<p style='font-size:0.1pt'>X", "<p style='font-size:1e-9px'>X",
		"<p hidden><table><tr><td>X</table>", // without a doctype a table stays in the p
	} {
		_, got, _ := readHTML("a "+html, page(t, here), true, 1<<20)
		if strings.Contains(got, "X") {
			t.Errorf("%s: %q", html, got)
		}
	}
}
