/* What several scripts of the pages share; Dash loads them by name, this one before them. */
window.mpprof = {
  element: function (tag, text, className) {
    var made = document.createElement(tag);
    if (text !== undefined) made.textContent = text; /* names are text, never markup */
    if (className) made.className = className;
    return made;
  },
  /* A path of the app's own, below that which a proxy puts before it. */
  at: function (path) {
    return (document.documentElement.dataset.base || "") + path;
  },
  /* What the page is of: for its title, for paper and for the names of files. */
  stamp: function () {
    var field = document.getElementById("run");
    var tab = document.querySelector(".mp-tab-current");
    var now = new Date();
    var two = function (n) { return String(n).padStart(2, "0"); };
    return {
      page: tab ? tab.textContent : "",
      run: (field && (field.title || field.value)) || "",
      date: now.getFullYear() + "-" + two(now.getMonth() + 1) + "-" + two(now.getDate()),
      version: document.documentElement.dataset.version,
    };
  },
  entitle: function () {
    var of = window.mpprof.stamp();
    var footer = document.querySelector(".mp-footer");
    document.title = [of.page, of.run, "mpprof " + of.version].filter(Boolean).join(" \u00b7 ");
    if (footer) footer.dataset.stamp = [of.page, of.run, of.date, "mpprof " + of.version].filter(Boolean).join(" \u00b7 ");
  },
  file: function (what, kind) {
    var of = window.mpprof.stamp();
    var run = of.run.replace(/[^A-Za-z0-9._-]+/g, "-");
    return ["mpprof", of.version, run, what || of.page.toLowerCase(), of.date].filter(Boolean).join("-") + "." + kind;
  },
  /* To another address within the app, as dcc.Link goes there. Never by setting a property of dcc.Location: it keeps
     the address from before a script replaced it, and would go back there. */
  go: function (address) {
    window.history.pushState({}, "", address);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  },
};
