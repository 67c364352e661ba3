/* The roofline picks rows of the tables but for products, which name no op; the icicle filters the table of layers. */
(function () {
  "use strict";
  function only(keys) {
    document.querySelectorAll(".mp-rows:not(#products)").forEach(function (table) {
      table.dispatchEvent(new CustomEvent("mp-only", { detail: keys }));
    });
  }
  function look() {
    var plot = document.querySelector("#roofline .js-plotly-plot");
    if (!plot || !plot.on || plot.dataset.picks) return;
    plot.dataset.picks = "1";
    plot.on("plotly_selected", function (event) {
      var points = (event && event.points) || [];
      only(points.map(function (point) { return point.customdata; }).filter(Boolean));
    });
    plot.on("plotly_deselect", function () {
      only([]);
    });
  }
  document.addEventListener("click", function (event) {
    var face = event.target.closest && event.target.closest("[data-layer]");
    var field = face && document.querySelector('#layers input[data-field="short"]');
    if (!field) return;
    var whole = face.dataset.layer && "=" + face.dataset.layer; /* with what lies below it, and no other */
    field.value = field.value === whole ? "" : whole;
    field.dispatchEvent(new Event("input"));
  });
  /* What a scope is, whole, where the drawing has no room for it and no pointer hovers. */
  function say(event) {
    var face = event.target.closest && event.target.closest(".mp-ice-face");
    var said = face && document.getElementById("layers-said");
    if (said) said.textContent = face.title;
  }
  document.addEventListener("focusin", say);
  document.addEventListener("click", say);
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
})();
