/* A figure of plotly.js: drawn once its width is known, and anew where its width or its data change. dcc.Graph draws
   every figure twice, the second time to the same size a tenth of a second later. */
(function () {
  "use strict";
  var loading = null;
  function plotly() {
    if (window.Plotly) return Promise.resolve(window.Plotly);
    loading =
      loading ||
      new Promise(function (done, failed) {
        var script = document.createElement("script");
        script.src = window._dashPlotlyJSURL;
        script.onload = function () {
          done(window.Plotly);
        };
        script.onerror = function () {
          loading = null;
          failed(new Error("plotly.js could not be loaded: is mpprof serve still running?"));
        };
        document.body.appendChild(script);
      });
    return loading;
  }
  function isZoom(change) {
    return Object.keys(change).some(function (name) {
      return /^[xy]axis\d*\./.test(name);
    });
  }
  /* What draws into `plot`, whose properties `now` holds. */
  function Drawing(plot, now) {
    var width = 0;
    var drawn = null;
    var wanted = false;
    function draw() {
      var figure = now.current.figure;
      wanted = false;
      drawn = figure;
      var layout = Object.assign(structuredClone(figure.layout), { height: undefined });
      var first = !plot._fullLayout;
      window.Plotly.react(plot, figure.data, layout, now.current.config);
      if (first)
        plot.on("plotly_relayout", function (change) {
          if (isZoom(change)) now.current.setProps({ relayoutData: change });
        });
    }
    function ask() {
      if (!width || wanted || drawn === now.current.figure) return;
      wanted = true;
      plotly().then(function () {
        if (wanted) draw();
      });
    }
    var sizes = new ResizeObserver(function () {
      var before = width;
      width = plot.clientWidth;
      if (before && width && width !== before && plot._fullLayout) window.Plotly.Plots.resize(plot);
      ask();
    });
    sizes.observe(plot);
    this.ask = ask;
    this.end = function () {
      wanted = false;
      sizes.disconnect();
      if (window.Plotly) window.Plotly.purge(plot);
    };
  }
  function Graph(props) {
    var react = window.React;
    var box = react.useRef(null);
    var now = react.useRef(props);
    var drawing = react.useRef(null);
    now.current = props;
    react.useEffect(function () {
      drawing.current = new Drawing(box.current, now);
      return function () {
        drawing.current.end();
      };
    }, []);
    react.useEffect(
      function () {
        drawing.current.ask();
      },
      [props.figure]
    );
    var whole = { style: { height: "100%" }, ref: box };
    return react.createElement(
      "div",
      { id: props.id, className: "mp-graph", style: { height: props.figure.layout.height } },
      react.createElement("div", whole)
    );
  }
  window.mpprof.plotly = plotly;
  window.mpprof_dashboards = Object.assign(window.mpprof_dashboards || {}, { Graph: Graph });
})();
