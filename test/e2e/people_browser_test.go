package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// What the tests of people (people_*_test.go) share: a browser as a person sits at it. It is a real Chromium that reaches this machine
// alone. What its pages write to the console as an error, or break of their Content-Security-Policy, fails the test.

// patience is how long a browser may take for anything: long, because machines that run tests are loaded.
const patience = 30 * time.Second

// watching is put before every page's own scripts: it knows whether the page is live, and whether it fetches something just now.
const watching = `(() => {
	const s = window.__watch = {open: 0, told: 0, flying: 0};
	addEventListener("htmx:sseOpen", () => { s.open++ }, true);
	addEventListener("htmx:sseMessage", () => { s.told++ }, true);
	const send = XMLHttpRequest.prototype.send;
	XMLHttpRequest.prototype.send = function () { s.flying++; this.addEventListener("loadend", () => { s.flying-- }); return send.apply(this, arguments) };
})()`

// settled tells whether a page has what it will have until something happens: its stream is open, and what the first event asked for is there.
const settled = `document.readyState === "complete" && (!document.querySelector("[sse-connect]") ||
	!!window.__watch && __watch.open > 0 && __watch.flying === 0 && (__watch.told > 0 || !document.querySelector('[hx-trigger*="sse:all"]')))`

// browser is a profile of its own in Chromium, at one page.
type browser struct {
	t      testing.TB
	ctx    context.Context
	script bool // runs the scripts of pages

	mu       sync.Mutex // guards what follows
	written  []string   // errors in the console
	errors   []string   // of them, those that are not expected
	expected []string
}

// chromium finds the program.
func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	requireTool(t, false, "Chromium (apt-get install chromium)")
	return ""
}

// chrome is the one Chromium of all tests, which starts with the first browser and is stopped by TestMain.
var chrome struct {
	sync.Mutex
	ctx  context.Context
	stop func()
}

// startChrome starts Chromium unless it runs, and returns the context that browsers are made in.
func startChrome(t testing.TB) context.Context {
	t.Helper()
	chrome.Lock()
	defer chrome.Unlock()
	if chrome.ctx != nil {
		return chrome.ctx
	}
	allocator, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.UserDataDir(filepath.Join(built.dir, "profile")), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"))...)
	quiet := func(string, ...any) {}
	ctx, cancel := chromedp.NewContext(allocator, chromedp.WithLogf(quiet), chromedp.WithErrorf(quiet))
	if err := chromedp.Do(ctx); err != nil { // starts it; its life must not hang on a deadline
		cancel()
		end()
		t.Fatalf("Chromium does not start: %v", err)
	}
	chrome.ctx, chrome.stop = ctx, func() { cancel(); end() }
	return ctx
}

// stopChrome ends Chromium if a test started it.
func stopChrome() {
	chrome.Lock()
	defer chrome.Unlock()
	if chrome.stop != nil {
		chrome.stop()
	}
}

func newBrowser(t testing.TB) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(startChrome(t), chromedp.WithNewBrowserContext())
	b := &browser{t: t, ctx: ctx, script: true}
	var reading sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, e := range b.errors {
			t.Errorf("a page wrote to the console: %s", e)
		}
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("Chromium opens no page: %v", err)
	}
	messages := chromedp.Console(ctx)
	reading.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleException {
				b.wrote(fmt.Sprintf("%s (%s) at %s", m.Text, m.Source, m.URL))
			}
		}
	})
	b.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": watching})
	b.look("light", 1280)
	return b
}

func (b *browser) wrote(e string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written = append(b.written, e)
	for _, words := range b.expected {
		if strings.Contains(e, words) {
			return
		}
	}
	b.errors = append(b.errors, e)
}

// broken are the words of pages whose gateway went away.
var broken = []string{"net::ERR_", "[object Event]", "htmx:sendError", "htmx:afterRequest"}

// heard is how many errors with these words there were.
func (b *browser) heard(words string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.written {
		if strings.Contains(e, words) {
			n++
		}
	}
	return n
}

// expect names words of errors that are right: what a page says when the gateway is gone, say.
func (b *browser) expect(words ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, words...)
}

// do runs steps within the browser's patience.
func (b *browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, slack(patience))
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v\non the page: %s", what, err, b.text())
	}
}

// call is a command of the DevTools protocol.
func (b *browser) call(method string, parameters map[string]any) {
	b.t.Helper()
	b.do(method, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error { return t.Call(ctx, method, parameters, nil) }))
}

// try evaluates an expression in the page. It fails while the page is being left.
func try[T any](b *browser, expression string, o ...chromedp.EvaluateOption) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, slack(patience))
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression, o...))
}

// eval is try that fails the test.
func eval[T any](b *browser, expression string, o ...chromedp.EvaluateOption) T {
	b.t.Helper()
	v, err := try[T](b, expression, o...)
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for an expression to be true.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(slack(patience)); ; time.Sleep(20 * time.Millisecond) {
		if ok, err := try[bool](b, "!!("+expression+")"); err == nil && ok {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("not within %s: %s\non the page: %s", slack(patience), what, b.text())
		}
	}
}

// open goes to an address and waits until the page is there.
func (b *browser) open(address string) {
	b.t.Helper()
	b.do("open "+address, chromedp.Navigate(address))
	b.settle()
}

func (b *browser) settle() {
	b.t.Helper()
	if b.script {
		b.until("the page is live", settled)
	}
}

// click presses what a selector finds, with the mouse.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.settle()
	_, _ = try[any](b, "document.querySelector("+quote(selector)+")?.scrollIntoView({block: 'center'})") // away from what sticks to the edges
	b.do("click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// enter writes into a field, in the place of what is there.
func (b *browser) enter(selector, text string) {
	b.t.Helper()
	b.settle()
	b.do("write into "+selector, chromedp.SetValue(chromedp.CSS(selector), text))
}

// press presses keys, wherever the focus is.
func (b *browser) press(keys string) {
	b.t.Helper()
	b.settle()
	b.do("press a key", chromedp.KeyEvent(keys))
}

// text is what the page shows, with its spaces folded.
func (b *browser) text() string {
	s, err := try[string](b, "document.body.innerText")
	if err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(s), " ")
}

// said is an expression that is true while the page shows words.
func said(words string) string {
	return "document.body.innerText.replace(/\\s+/g, ' ').includes(" + quote(words) + ")"
}

// see waits until the page shows words.
func (b *browser) see(words string) {
	b.t.Helper()
	b.until("the page shows "+words, said(words))
}

// unseen fails the test if the page shows words.
func (b *browser) unseen(words string) {
	b.t.Helper()
	if text := b.text(); strings.Contains(text, words) {
		b.t.Errorf("the page shows %q: %s", words, text)
	}
}

// at waits until the page is one whose path begins so.
func (b *browser) at(path string) {
	b.t.Helper()
	b.until("the path is "+path, "location.pathname.startsWith("+quote(path)+")")
}

// look makes the page light or dark, and so wide.
func (b *browser) look(scheme string, width int) {
	b.t.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
		{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}, // what scrolls smoothly is missed by clicks
	}})
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
}

// phone makes the page as large as a small phone shows it.
func (b *browser) phone() {
	b.t.Helper()
	b.look("light", 360)
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": 360, "height": 640, "deviceScaleFactor": 2, "mobile": true})
}

// screen writes a picture of what is in sight, where shot would write one of the whole page.
func (b *browser) screen(name string) {
	b.t.Helper()
	dir := os.Getenv("SALLYPORT_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, slack(patience))
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatalf("a picture of %s: %v", name, err)
	}
	write(b.t, filepath.Join(dir, name+".png"), string(png))
}

// approve ticks what has to be ticked, and presses the button that approves.
func (b *browser) approve() {
	b.t.Helper()
	b.settle()
	for _, id := range eval[[]string](b, `Array.from(document.querySelectorAll("input.must:not(:checked)"), e => e.id)`) {
		b.click("#" + id)
	}
	b.click("#do-approve")
}

// unfold opens what is folded under the summary with the id.
func (b *browser) unfold(id string) {
	b.t.Helper()
	b.settle()
	if !eval[bool](b, `document.querySelector(`+quote("#"+id)+`).parentElement.open`) {
		b.click("#" + id)
	}
}

// withoutScripts switches the scripts of pages off.
func (b *browser) withoutScripts() {
	b.t.Helper()
	b.script = false
	b.call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true})
}

// shot writes a picture of the whole page to be looked at, where SALLYPORT_SCREENSHOTS names a folder.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("SALLYPORT_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, slack(patience))
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatalf("a picture of %s: %v", name, err)
	}
	write(b.t, filepath.Join(dir, name+".png"), string(png))
}

// signIn signs a person in with a token, at the form.
func (b *browser) signIn(w *world, token string) {
	b.t.Helper()
	b.open(w.admin)
	b.enter("#token", token)
	b.click("button[type=submit]")
	b.see("Sign out")
}

// accessible lets axe look at the page, in every look that people have it in; unless the test is thorough, in two that differ in both ways.
func (b *browser) accessible(page string) {
	b.t.Helper()
	axe, err := os.ReadFile(npm(b.t, "axe-core/axe.min.js"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int{1280, 390} {
			if !thorough() && (scheme == "dark") != (width == 390) {
				continue
			}
			b.look(scheme, width)
			b.settle()
			b.shot(fmt.Sprintf("%s-%s-%d", page, scheme, width))
			// Evaluated from outside: the page's own policy would not let it in.
			found := eval[string](b, `(async () => {
				if (!window.axe) { `+string(axe)+` }
				const r = await axe.run(document, {resultTypes: ["violations"]});
				return JSON.stringify(r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 200) + " — " + n.failureSummary).join("; ")));
			})()`, chromedp.EvalAwaitPromise)
			var violations []string
			if err := json.Unmarshal([]byte(found), &violations); err != nil {
				b.t.Fatal(err)
			}
			for _, v := range violations {
				b.t.Errorf("%s, %s, %d wide: %s", page, scheme, width, v)
			}
			if over := eval[int](b, "document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				b.t.Errorf("%s, %s, %d wide: the page is %d pixels too wide", page, scheme, width, over)
			}
		}
	}
	b.fits(page)
	b.look("light", 1280)
}

// outOfSight names what of a page can't be seen without moving it sideways. Tables and what else is in a box of the class wide move by themselves.
const outOfSight = `(() => {
	const wide = document.documentElement.clientWidth, out = [];
	if (document.documentElement.scrollWidth > wide) { out.push("the page is " + document.documentElement.scrollWidth + " wide"); }
	for (const e of document.querySelectorAll("body *")) {
		const box = e.closest(".wide"), r = e.getBoundingClientRect();
		if (box && box !== e || e.closest(".skip, .unseen, svg *") || r.width === 0 || r.height === 0) { continue; }
		const moves = e !== box && /auto|scroll/.test(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1 && !/^(TEXTAREA|INPUT|SELECT)$/.test(e.tagName);
		if (r.right > wide + 1 || r.left < -1 || moves) { out.push(e.outerHTML.slice(0, 120)); }
	}
	return out.slice(0, 5);
})()`

// fits fails the test if something of the page, or of its menu, is out of sight to the right or to the left on a small phone.
func (b *browser) fits(page string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.phone()
		b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion", "value": "reduce"}}})
		b.settle()
		b.screen(page + "-" + scheme + "-360")
		for _, e := range eval[[]string](b, outOfSight) {
			b.t.Errorf("%s, 360 wide, %s: out of sight: %s", page, scheme, e)
		}
	}
	if !eval[bool](b, `!!document.getElementById("menu")`) {
		return
	}
	b.do("open the menu", chromedp.Click(chromedp.CSS("#menu")))
	b.screen(page + "-menu-360")
	if n := eval[int](b, `[...document.querySelectorAll("#more a, #more button")].filter(e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.left >= 0 && r.right <= 360 && r.top >= 0 && r.bottom <= 640 }).length`); n < 2 {
		b.t.Errorf("%s: %d entries of the menu are in sight", page, n)
	}
	for _, e := range eval[[]string](b, outOfSight) {
		b.t.Errorf("%s, 360 wide, with the menu: out of sight: %s", page, e)
	}
	b.do("close the menu", chromedp.Click(chromedp.CSS("#menu")))
}
