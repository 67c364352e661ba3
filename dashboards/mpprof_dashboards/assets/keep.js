/* What a reader chose stays while a running training's page is drawn again: the zoom of figures and what is unfolded,
   which are kept here by address, and the remedies that are switched off, which stand in the address (`off`), so that a
   link shows them. Dash makes every element anew. */
(function () {
  "use strict";
  var zooms = {};
  var opened = {};
  function here() {
    var asked = new URLSearchParams(window.location.search);
    return [window.location.pathname, asked.get("run"), asked.get("baseline")].join(" ");
  }
  function zoomed(key, change) {
    var kept = (zooms[key] = zooms[key] || {});
    Object.keys(change).forEach(function (name) {
      var axis = name.split(".")[0];
      if (!/^[xy]axis\d*\./.test(name)) return;
      if (name.endsWith(".autorange") || name.endsWith(".showspikes")) {
        Object.keys(kept).forEach(function (each) {
          if (each.startsWith(axis + ".")) delete kept[each];
        });
      } else kept[name] = change[name];
    });
  }
  function keepFigure(plot) {
    if (plot.dataset.kept || !plot.on || !plot._fullLayout || !window.Plotly) return;
    plot.dataset.kept = "1";
    var key = here() + " " + plot.parentElement.id;
    plot.on("plotly_relayout", function (change) {
      zoomed(key, change);
    });
    if (zooms[key] && Object.keys(zooms[key]).length) window.Plotly.relayout(plot, Object.assign({}, zooms[key]));
  }
  function keyOf(details) { /* counts in its title may change */
    return here() + " " + (details.id || details.querySelector("summary").textContent.replace(/\d/g, ""));
  }
  function keepDetails(details) {
    if (details.dataset.kept) return;
    details.dataset.kept = "1";
    if (opened[keyOf(details)]) details.open = true;
  }
  function codeOf(toggle) {
    return toggle.closest("tr").dataset.code;
  }
  function switchedOff() {
    return (new URLSearchParams(window.location.search).get("off") || "").split(",").filter(Boolean);
  }
  function keepSwitch(toggle) {
    if (toggle.dataset.kept) return;
    toggle.dataset.kept = "1";
    if (switchedOff().indexOf(codeOf(toggle)) >= 0) toggle.click();
  }
  function remember(toggle, isOff) {
    var address = new URLSearchParams(window.location.search);
    var all = switchedOff().filter(function (code) {
      return code !== codeOf(toggle);
    });
    if (isOff) all.push(codeOf(toggle));
    if (all.length) address.set("off", all.join(","));
    else address.delete("off");
    var query = address.toString().replace(/%2C/g, ",");
    window.history.replaceState(window.history.state, "", window.location.pathname + "?" + query);
  }
  var tab = null;
  function showTab() { /* where the tabs are wider than the window */
    var current = document.querySelector(".mp-tab-current");
    if (!current || current === tab) return;
    tab = current;
    var nav = current.parentElement;
    nav.scrollLeft = current.offsetLeft - nav.offsetLeft - (nav.clientWidth - current.offsetWidth) / 2;
  }
  document.addEventListener(
    "toggle",
    function (event) { /* those outside of the page stay as they are */
      var details = event.target;
      if (details.dataset.kept) opened[keyOf(details)] = details.open;
    },
    true
  );
  document.addEventListener("click", function (event) {
    var toggle = event.target.closest(".mp-switch[data-bit]");
    if (!toggle) return; /* why.js, which comes later, has not changed it yet */
    remember(toggle, toggle.getAttribute("aria-checked") === "true");
  });
  new MutationObserver(function () {
    showTab();
    document.querySelectorAll("#page .js-plotly-plot").forEach(keepFigure);
    document.querySelectorAll("#page details").forEach(keepDetails);
    document.querySelectorAll("#page .mp-switch[data-bit]").forEach(keepSwitch);
  }).observe(document.documentElement, { childList: true, subtree: true });
})();
