/* The choosers of run and baseline write the address; another run comes with the baseline that it is paired with. */
(function () {
  "use strict";
  function entitle(id, value, options) {
    /* The whole name, where the field has no room for it. */
    var field = document.getElementById(id);
    var option = (options || []).filter(function (each) { return each.value === value; })[0];
    if (field) field.title = option ? option.label : "";
  }
  function choose(run, baseline, options, shown) {
    var dash = window.dash_clientside;
    entitle("run", run, options);
    entitle("baseline", baseline, options);
    if (shown && run === shown[0] && baseline === shown[1]) return dash.no_update; /* set by the server */
    if (!run) return dash.no_update;
    var address = new URLSearchParams(window.location.search);
    var search;
    var option = (options || []).filter(function (each) { return each.value === run; })[0];
    if (run !== (shown || [])[0] && option) search = option.query;
    else {
      address.set("run", run);
      address.set("baseline", baseline && baseline !== run ? baseline : "none");
      address.delete("with");
      search = "?" + address.toString();
    }
    window.mpprof.go(window.location.pathname + search);
    return dash.no_update;
  }
  function follow(search, options) {
    /* The choosers show what the address names as soon as it changes: the server's answer, which also knows of runs
       that are not listed yet, may come after the page of that run. */
    var keep = window.dash_clientside.no_update;
    var address = new URLSearchParams(search || "");
    function listed(id) {
      return (options || []).some(function (each) { return each.value === id; });
    }
    var run = address.get("run");
    var baseline = address.get("baseline");
    if (!listed(run) || !(baseline === "none" || listed(baseline))) return [keep, keep, keep];
    if (baseline === "none" || baseline === run) baseline = null;
    return [run, baseline, [run, baseline]];
  }
  function named() {
    window.requestAnimationFrame(window.mpprof.entitle); /* once the tab of the page is marked */
    return window.dash_clientside.no_update;
  }
  /* Typing looks for another run from its first letter on: the name that stands there is marked, so that it gives
     way. Escape brings it back. */
  function chooser(event) {
    return /^(run|baseline)$/.test(event.target.id) ? event.target : null;
  }
  ["focusin", "click"].forEach(function (kind) {
    document.addEventListener(kind, function (event) {
      var field = chooser(event);
      if (field && field.value && field.value === field.title) field.select();
    });
  });
  document.addEventListener("keydown", function (event) {
    var field = event.key === "Escape" && chooser(event);
    if (field) setTimeout(function () { field.blur(); }, 0); /* its list has closed by then */
  });
  window.dash_clientside = Object.assign({}, window.dash_clientside, { mpprof: { choose: choose, follow: follow, named: named } });
})();
