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
    flow(now);
    var limits = document.getElementById("limits"); /* of the step after all changes alone */
    if (limits) limits.style.visibility = (mask & known) === known ? "" : "hidden";
  }
  /* The bar after the changes: its segments, as long as the report says they are, one after the other. */
  function flow(now) {
    var drawing = document.querySelector(".mp-flow");
    var bar = drawing && drawing.querySelector('[data-key="after"]');
    if (!bar) return;
    var whole = Number(drawing.dataset.whole);
    var place = function (ns) {
      return ((100 * ns) / whole).toFixed(3) + "%"; /* a place on the screen */
    };
    var segments = Array.from(bar.querySelectorAll(".mp-flow-part"));
    var divided = segments.some(function (one) {
      return one.dataset.key in now.parts;
    });
    var before = Number(bar.dataset.ns);
    var at = 0;
    segments.forEach(function (one) {
      var ns = divided ? now.parts[one.dataset.key] || 0 : before && (Number(one.dataset.ns) * now.ns) / before;
      var rect = one.querySelector("rect");
      rect.setAttribute("x", place(at));
      rect.setAttribute("width", place(ns));
      one.dataset.ns = String(ns);
      one.querySelectorAll("text").forEach(function (label) {
        label.setAttribute("x", place(at + ns / 2));
        label.style.visibility = "";
        if (label.getComputedTextLength() + 6 > rect.getBoundingClientRect().width) label.style.visibility = "hidden";
      });
      at += ns;
    });
    bar.dataset.ns = String(now.ns);
    bar.querySelector(".mp-flow-end").setAttribute("x", place(now.ns));
    bar.querySelector(".mp-flow-total").textContent = now.step;
    bar.querySelector(".mp-flow-said").textContent = now.said ? " " + now.said : "";
    var told = now.said.split("; "); /* above a narrow bar, and below it */
    var above = drawing.querySelector('[data-of="after"]');
    above.textContent = [above.dataset.name, now.step, told[0]].filter(Boolean).join(" \u00b7 ");
    drawing.querySelector(".mp-flow-tail").textContent = told[1] || "";
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
