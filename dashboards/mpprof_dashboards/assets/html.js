/* One element whose inside the server wrote as HTML text, every name in it escaped; and the links in it, which lead
   to another page without loading everything anew. */
(function () {
  "use strict";
  function Html(props) {
    var inside = { dangerouslySetInnerHTML: { __html: props.markup } };
    return window.React.createElement(props.tag, Object.assign(inside, props.attributes));
  }
  window.mpprof_dashboards = Object.assign(window.mpprof_dashboards || {}, { Html: Html });
  document.addEventListener("click", function (event) {
    var link = event.target.closest && event.target.closest("a[data-link]");
    if (!link || event.metaKey || event.shiftKey || event.altKey || event.ctrlKey) return;
    event.preventDefault();
    window.mpprof.go(link.getAttribute("href"));
    window.scrollTo(0, 0);
  });
})();
