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
  /* To another address within the app, as dcc.Link goes there. Never by setting a property of dcc.Location: it keeps
     the address from before a script replaced it, and would go back there. */
  go: function (address) {
    window.history.pushState({}, "", address);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
  },
};
