// The second press of a double click answers nothing: it can meet a button of a page that nobody has read yet.
(function () {
  "use strict";
  document.addEventListener("click", function (e) {
    if (e.detail > 1 && e.target.closest && e.target.closest("button[type=submit]")) { e.preventDefault(); e.stopPropagation(); }
  }, true);
})();
