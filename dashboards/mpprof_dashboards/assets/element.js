/* What several scripts of the pages share; Dash loads them by name, this one before them. */
window.mpprof = {
  element: function (tag, text, className) {
    var made = document.createElement(tag);
    if (text !== undefined) made.textContent = text; /* names are text, never markup */
    if (className) made.className = className;
    return made;
  },
};
