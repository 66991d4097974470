// Keys move to what acts; none acts by itself. They can be switched off in the help, in this browser.
(function () {
  "use strict";
  var store = "sallyport.keys";
  function on() { try { return localStorage.getItem(store) !== "off"; } catch (e) { return true; } }
  function go(el) { if (el) { var box = el.closest("details"); if (box) { box.open = true; } el.focus(); el.scrollIntoView({ block: "center" }); } return !!el; }
  function step(by) {
    var rows = Array.prototype.slice.call(document.querySelectorAll("[data-row]"));
    if (!rows.length) { return go(document.querySelector(by > 0 ? "[data-key=j]" : "[data-key=k]")); }
    var at = rows.indexOf(document.activeElement);
    return go(rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by))]);
  }
  document.addEventListener("DOMContentLoaded", function () {
    var box = document.getElementById("keys-on");
    if (!box) { return; }
    box.checked = on();
    box.addEventListener("change", function () { try { localStorage.setItem(store, box.checked ? "on" : "off"); } catch (e) { /* then for this page only */ } });
  });
  document.addEventListener("keydown", function (e) {
    var el = e.target, help = document.getElementById("keys");
    if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing || el.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(el.tagName) && el.type !== "checkbox" || help && help.open) { return; }
    var done = false;
    if (e.key === "?" && help) { help.showModal(); done = true; }
    else if (!on()) { return; }
    else if (e.key === "j" || e.key === "k") { done = step(e.key === "j" ? 1 : -1); }
    else if (e.key === "a" || e.key === "r" || e.key === "d") { done = go(document.querySelector("[data-key=" + e.key + "]")); }
    if (done) { e.preventDefault(); }
  });
})();
