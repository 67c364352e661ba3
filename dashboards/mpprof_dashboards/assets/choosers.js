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
  window.dash_clientside = Object.assign({}, window.dash_clientside, { mpprof: { choose: choose } });
})();
