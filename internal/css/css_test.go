package css

import "testing"

// What designers write about things that are seen stays, and more that hides doesn't.
func TestHides(t *testing.T) {
	for _, style := range []string{
		"", "transform:scale(1)", "transform:scale(.5)", "transform:scale(-1, 1)", "transform:translate(-50%, -50%)", "transform:translateX(-100%) rotate(45deg)", "transform:matrix(1,0,0,1,0,0)", "transform:rotateX(45deg)",
		"clip-path:inset(0 round 9999px)", "clip-path:circle(closest-side at 0 0)", "clip-path:circle(40%)", "clip-path:polygon(0 0, 100% 0, 100% 100%)", "clip:rect(0, 200px, 100px, 0)", "clip:rect(auto,auto,auto,auto)", "clip:auto", "clip-path:none", "clip-path:polygon(evenodd, 0 0, 1px 1px)",
		"color:#000", "color:#fff0f0", "color:#000f", "color:rgba(0,0,0,.87)", "color:rgb(0 0 0 / 50%)", "color:rgb(0,0,0)", "color:hsl(0 0% 0%)", "color:rgb(10 20 0)",
		"position:absolute;top:6000px", "margin:-10px", "margin-left:-50vw;left:50%", "margin-left:-100%", "margin:0 auto", "left:100%", "filter:opacity(.8)", "filter:blur(0)",
		"height:0", "height:100px;overflow:auto", "height:0;overflow:visible", "opacity:.5", "opacity:1", "font-size:2px", "scale:1 1", "translate:10px", "inset:0", "position:fixed;top:0",
	} {
		if Hides(style) {
			t.Errorf("%q is seen", style)
		}
	}
	for _, style := range []string{
		"clip-path:inset(0 0 100% 0)", "clip-path:ellipse(50% 0)", "clip:rect(0 0 0 auto)", "clip-path:xywh(0 0 0 10px)", "clip-path:polygon(0 0, 100% 0)", "-webkit-clip-path:circle(0 at 50% 50%)",
		"transform:rotateY(90deg)", "transform:matrix(0,0,0,0,0,0)", "transform:rotate(3deg) scale(0)", "transform:translate3d(-100in,0,0)", "translate:0 -9999px", "scale:1 0.01",
		"COLOR:RGBA(0 , 0 , 0 , 0%)", "color:hwb(0 0% 0% / 0.01)", "color:#00000005", "position:fixed;top:9999px", "top:9999px;position:fixed", "inset-inline-start:-9999px", "margin-top:-100cm",
		"left:calc(-9999px)", "opacity:calc(0)", "opacity:4%", "block-size:0;overflow-block:clip", "font-size:calc(0px)", "cl\\69p-path:inset(50%)",
	} {
		if !Hides(style) {
			t.Errorf("%q is not seen", style)
		}
	}
}
