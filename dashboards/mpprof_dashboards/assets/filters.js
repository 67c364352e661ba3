/* Filters of the tables: "15" finds "15.6 ms"; ">= 1 ms" and "< 5 %" compare. A number without a unit is in
   milliseconds, per cent or MiB, by its column. */
(function () {
  "use strict";
  var UNITS = {
    ns: { ns: 1, us: 1e3, "\u00b5s": 1e3, "\u03bcs": 1e3, ms: 1e6, s: 1e9, "": 1e6 },
    bytes: { bytes: 1, b: 1, kib: 1024, mib: 1048576, gib: 1073741824, "": 1048576 },
    "%": { "%": 0.01, "": 0.01 },
    "": { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12 },
  };
  var COMPARISON = /^\s*(<=|>=|<|>|=)\s*([0-9][0-9.,]*)\s*(%|[a-z\u00b5\u03bc]*)/i;
  function compare(value, sign, limit) {
    if (sign === ">=") return value >= limit;
    if (sign === "<=") return value <= limit;
    if (sign === ">") return value > limit;
    if (sign === "<") return value < limit;
    return Math.abs(value - limit) <= 0.005 * Math.abs(limit);
  }
  var names = (window.dashAgGridFunctions = window.dashAgGridFunctions || {});
  names.matchQuantity = function (params, field, shown, unit) {
    var typed = params.filterText || "";
    var found = COMPARISON.exec(typed);
    if (found) {
      var value = params.data[field];
      var one = UNITS[unit][found[3].toLowerCase()] || UNITS[unit][found[3].toLowerCase()[0] || ""];
      if (value === null || value === undefined || one === undefined) return false;
      return compare(Number(value), found[1], Number(found[2].replace(/,/g, "")) * one);
    }
    if (/^\s*[<>=]/.test(typed)) return true; /* a comparison that is still being typed */
    var text = String((shown ? params.data[shown] : params.data[field]) ?? "").toLowerCase();
    return text.indexOf(typed.trim().toLowerCase()) >= 0;
  };
})();
