/* Why: switches of remedies and buttons that copy. Every number shown was computed by the report: the page
   carries one entry for each combination of remedies, and a switch only looks its entry up. */
(function () {
  "use strict";
  function chosen(section) {
    var mask = 0;
    section.querySelectorAll("[data-bit]").forEach(function (one) {
      if (one.getAttribute("aria-checked") === "true") mask |= 1 << Number(one.dataset.bit);
    });
    return mask;
  }
  function show(section) {
    var all = JSON.parse(section.dataset.combinations);
    var mask = chosen(section);
    var known = (1 << Number(section.dataset.bits)) - 1;
    var now = all[mask & known];
    if (!now) return;
    section.querySelector("#whatif-total").textContent = now.total;
    section.querySelectorAll("[data-after]").forEach(function (cell) {
      var upTo = mask & known & ((2 << Number(cell.dataset.after)) - 1);
      var on = mask & (1 << Number(cell.dataset.after));
      cell.textContent = on && all[upTo] ? all[upTo].step : "\u2014";
    });
    var chart = document.getElementById("causes");
    if (!chart) return;
    section.querySelectorAll("tr[data-code]").forEach(function (row) {
      var toggle = row.querySelector("[data-bit]");
      var bar = chart.querySelector('[data-key="' + row.dataset.code + '"]');
      if (toggle && bar) bar.classList.toggle("mp-off", toggle.getAttribute("aria-checked") !== "true");
    });
    var after = chart.querySelector('[data-key="after"]');
    if (!after) return;
    var end = ((100 * now.ns) / Number(chart.dataset.whole)).toFixed(3) + "%"; /* a place on the screen */
    after.querySelector(".mp-fill").style.width = end;
    after.querySelector(".mp-bar-value").style.left = end;
    after.querySelector(".mp-bar-number").textContent = now.step;
    after.querySelector(".mp-bar-note").textContent = now.note;
    after.dataset.ns = String(now.ns);
  }
  document.addEventListener("click", function (event) {
    var toggle = event.target.closest && event.target.closest(".mp-switch[data-bit]");
    if (toggle) {
      var on = toggle.getAttribute("aria-checked") === "true";
      toggle.setAttribute("aria-checked", on ? "false" : "true");
      show(toggle.closest("[data-combinations]"));
      return;
    }
    var copy = event.target.closest && event.target.closest("[data-copy]");
    if (copy && navigator.clipboard) {
      navigator.clipboard.writeText(copy.dataset.copy).then(function () {
        var before = copy.textContent;
        copy.textContent = "copied";
        setTimeout(function () {
          copy.textContent = before;
        }, 1200);
      });
    }
  });
})();
