// A page that is no longer told of changes says so: what it shows may be old. A break that mends within seconds is not worth a word.
(function () {
  "use strict";
  var waiting = 0;
  function say(words) { var note = document.getElementById("stale"); if (note && note.textContent !== words) { note.textContent = words; } }
  document.addEventListener("htmx:sseError", function () {
    var note = document.getElementById("stale");
    if (note && !waiting) { waiting = setTimeout(function () { say(note.dataset.words); }, 3000); }
  });
  document.addEventListener("htmx:sseOpen", function () { clearTimeout(waiting); waiting = 0; say(""); });
})();
