/* plotly.js, which draws the figures, is 4.8 MB of script: it is fetched and run once the first page is there and the
   browser idle, so that a page with a figure needs not wait for it. dcc.Graph loads it itself where it is not there. */
(function () {
  "use strict";
  var idle = window.requestIdleCallback || function (then) { setTimeout(then, 500); };
  function run() {
    if (window.Plotly || document.querySelector('script[src="' + window._dashPlotlyJSURL + '"]')) return;
    var script = document.createElement("script");
    script.src = window._dashPlotlyJSURL;
    script.async = true;
    document.body.appendChild(script);
  }
  var waiting = new MutationObserver(function () {
    if (!window._dashPlotlyJSURL || !document.querySelector("#page .mp-card")) return;
    waiting.disconnect();
    idle(function () { /* into the browser's cache, so that the script is run as soon as it is asked for */
      fetch(window._dashPlotlyJSURL, { priority: "low" })
        .then(function (answer) { return answer.blob(); })
        .then(function () { idle(run); })
        .catch(function () {});
    });
  });
  waiting.observe(document.documentElement, { childList: true, subtree: true });
})();
