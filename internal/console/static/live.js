// A page that is no longer told of changes says so: what it shows may be old. A break that mends within seconds is not worth a word.
// Browsers open six connections to a host and no more, and each page that is live holds one: a page in the background lets go of its own, and
// asks for everything anew when it is looked at again.
(function () {
  "use strict";
  var source = null, waiting = 0, opening = false;
  function say(words) { var note = document.getElementById("stale"); if (note && note.textContent !== words) { note.textContent = words; } }
  document.addEventListener("htmx:sseError", function () {
    var note = document.getElementById("stale");
    if (note && !waiting) { waiting = setTimeout(function () { say(note.dataset.words); }, 3000); }
  });
  document.addEventListener("htmx:sseOpen", function (e) {
    source = e.detail.source;
    opening = false;
    clearTimeout(waiting);
    waiting = 0;
    say("");
    if (document.hidden) { source.close(); }
  });
  document.addEventListener("visibilitychange", function () {
    if (!source) { return; }
    if (document.hidden) { source.close(); }
    else if (source.readyState === EventSource.CLOSED && !opening) {
      opening = true;
      source.onerror(new Event("error")); // as if it had broken: htmx opens another one
    }
  });
})();
// Times of day are the reader's; without scripts they are UTC.
(function () {
  "use strict";
  function local(root) {
    Array.prototype.forEach.call(root.querySelectorAll("time[data-clock]"), function (el) {
      var at = new Date(el.getAttribute("datetime"));
      if (!isNaN(at)) { el.textContent = ("0" + at.getHours()).slice(-2) + ":" + ("0" + at.getMinutes()).slice(-2); el.title = at.toString(); }
    });
  }
  document.addEventListener("DOMContentLoaded", function () { local(document); });
  document.addEventListener("htmx:load", function (e) { local(e.target); });
})();
// The title of the page has how much waits, as the navigation has it.
(function () {
  "use strict";
  document.addEventListener("htmx:afterSettle", function () {
    var count = document.getElementById("waiting");
    if (!count || !count.firstChild) { return; }
    var n = count.firstChild.textContent.trim(), bare = document.title.replace(/^\([^)]*\) /, "");
    document.title = (n && n !== "0" ? "(" + n + ") " : "") + bare;
  });
})();
