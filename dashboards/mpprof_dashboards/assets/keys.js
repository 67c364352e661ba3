/* Keys: "?" shows them, j and k go through the causes, [ and ] through the runs, / to the first filter. */
(function () {
  "use strict";
  function typing(target) {
    return target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
  }
  function causes() {
    return Array.from(document.querySelectorAll("#whatif tr[data-code] a[data-link]"));
  }
  function step(by) {
    var all = causes();
    if (!all.length) return;
    var at = all.indexOf(document.activeElement);
    all[at < 0 ? (by > 0 ? 0 : all.length - 1) : (at + by + all.length) % all.length].focus();
  }
  function run(by) {
    fetch(window.mpprof.at("/runs.json"))
      .then(function (answer) {
        return answer.json();
      })
      .then(function (got) {
        var all = [];
        got.groups.forEach(function (group) {
          group.runs.forEach(function (each) {
            if (!each.problem) all.push(each);
          });
        });
        var now = new URLSearchParams(window.location.search).get("run");
        var at = all.findIndex(function (each) { return each.id === now; });
        if (!all.length) return;
        var next = all[at < 0 ? 0 : (at + by + all.length) % all.length];
        if (next.id !== now) window.mpprof.go(window.location.pathname + next.query);
      });
  }
  function close() {
    /* What is open beside the page: the menu, else the panel of a row. Returns whether something was. */
    var menu = document.querySelector("#share[open] summary");
    var opener = menu || document.querySelector(".mp-row-open [aria-expanded]");
    if (!opener) return false;
    opener.click();
    opener.focus();
    return true;
  }
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape" && !event.defaultPrevented && !typing(event.target)) {
      if (!document.getElementById("keys").open && close()) event.preventDefault();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    var help = document.getElementById("keys");
    var does = {
      "?": function () { if (help.open) help.close(); else help.showModal(); },
      j: function () { step(1); },
      k: function () { step(-1); },
      "[": function () { run(-1); },
      "]": function () { run(1); },
      "/": function () {
        var field = document.querySelector("#tl-find, #runs-search, .mp-rows input[data-first]");
        if (field) field.focus();
      },
    }[event.key];
    if (!does || event.defaultPrevented) return;
    event.preventDefault();
    does();
  });
  /* What can be scrolled is reached by Tab, so that arrow keys scroll it; what fits is not in the way. */
  var waiting = null;
  function reachable() {
    clearTimeout(waiting);
    waiting = setTimeout(function () {
      document.querySelectorAll(".mp-scroll, .mp-panel").forEach(function (box) {
        var over = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
        if (over) box.tabIndex = 0;
        else box.removeAttribute("tabindex");
      });
    }, 50);
  }
  new MutationObserver(reachable).observe(document.documentElement, { childList: true, subtree: true });
  window.addEventListener("resize", reachable);
  document.addEventListener("click", function (event) {
    if (event.target.id === "skip") {
      event.preventDefault(); /* the address stays as it is */
      document.getElementById("page").focus();
    } else if (event.target.id === "keys-open") document.getElementById("keys").showModal();
    else if (event.target.id === "keys-close" || event.target.id === "keys") document.getElementById("keys").close();
  });
})();
