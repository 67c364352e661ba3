/* What a page shows before its scripts have come is taken away once the frame shows the same.

   plotly.js, which draws the figures, is 4.8 MB of script: it is fetched and run while the first page is read, so that a
   page with a figure needs not wait for it. A figure that is drawn earlier asks for it itself. */
(function () {
  "use strict";
  var READ_MS = 1500; /* running it takes the browser half a second, in which nothing else is drawn */
  var idle = window.requestIdleCallback || function (then) { setTimeout(then, 500); };
  var announced = new MutationObserver(function () {
    if (!document.querySelector("#nav .mp-tab")) return;
    announced.disconnect();
    var first = document.getElementById("first");
    if (first) first.remove();
  });
  announced.observe(document.documentElement, { childList: true, subtree: true });
  var waiting = new MutationObserver(function () {
    if (!window._dashPlotlyJSURL || !document.querySelector("#page .mp-card")) return;
    waiting.disconnect();
    idle(function () { /* into the browser's cache, so that the script is run as soon as it is asked for */
      fetch(window._dashPlotlyJSURL, { priority: "low" })
        .then(function (answer) { return answer.blob(); })
        .then(function () { setTimeout(function () { idle(window.mpprof.plotly); }, READ_MS); })
        .catch(function () {});
    });
  });
  waiting.observe(document.documentElement, { childList: true, subtree: true });
})();
