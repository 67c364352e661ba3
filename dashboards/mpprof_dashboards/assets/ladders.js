/* Ladders of `mpprof try`, above the runs: asked for again every few seconds, as they grow. All is text. */
(function () {
  "use strict";
  var element = window.mpprof.element;
  var REFRESH_MS = 5000;
  function start(root) {
    root.dataset.started = "1";
    var shown = "";
    function poll() {
      if (!root.isConnected) return;
      fetch(window.mpprof.at("/ladders.json"))
        .then(function (answer) {
          return answer.status === 200 ? answer.text() : "[]";
        })
        .then(function (text) {
          if (text !== shown) draw(JSON.parse(text));
          shown = text;
        })
        .catch(function () {}) /* the server may be back at the next turn */
        .finally(function () {
          setTimeout(poll, REFRESH_MS);
        });
    }
    function draw(ladders) {
      root.replaceChildren();
      ladders.forEach(function (ladder) {
        var section = root.appendChild(element("section", undefined, "mp-section"));
        section.appendChild(element("h2", ladder.script + " under several settings", "mp-section-title"));
        section.appendChild(element("p", ladder.sentence, "mp-note"));
        var box = section.appendChild(element("div", undefined, "mp-card mp-flush mp-scroll"));
        box.tabIndex = 0;
        box.setAttribute("role", "region");
        box.setAttribute("aria-label", "Settings of " + ladder.script);
        var table = box.appendChild(element("table", undefined, "mp-runs-table"));
        var head = table.appendChild(element("thead")).appendChild(element("tr"));
        ladder.titles.forEach(function (title) {
          var cell = head.appendChild(element(title ? "th" : "td", title));
          if (title) cell.scope = "col";
        });
        var body = table.appendChild(element("tbody"));
        ladder.rows.forEach(function (row) {
          var line = body.appendChild(element("tr"));
          row.forEach(function (text) {
            line.appendChild(element("td", text));
          });
        });
      });
    }
    poll();
  }
  function look() {
    var root = document.getElementById("ladders");
    if (root && !root.dataset.started) start(root);
  }
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
})();
