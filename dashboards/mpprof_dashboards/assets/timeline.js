/* The timeline: a canvas that shows a window of the run. The server merges what is shorter than a pixel, so that
   what is drawn is bounded by the width of the screen, however large the trace is. */
(function () {
  "use strict";
  var element = window.mpprof.element;
  var GAP = 6;
  var HEIGHTS = { device: 46, host: 26, stream: 22, thread: 18 };
  var NAMES = 118;
  var AXIS = 22;

  function query() {
    return new URLSearchParams(window.location.search);
  }
  function duration(ns) {
    var units = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]];
    for (var i = 0; i < units.length; i++)
      if (Math.abs(ns) >= units[i][0] * 0.9995 || i === 3) {
        var value = ns / units[i][0];
        return value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2) + " " + units[i][1];
      }
  }

  function start(root) {
    root.dataset.started = "1";
    var theme = JSON.parse(root.dataset.colours);
    var canvas = root.appendChild(element("canvas"));
    canvas.setAttribute("aria-hidden", "true");
    var context = canvas.getContext("2d");
    var panel = document.getElementById("tl-panel");
    var steps = document.getElementById("tl-step");
    var search = document.getElementById("tl-search").appendChild(element("input", undefined, "mp-button"));
    search.type = "search";
    search.placeholder = "search kernels";
    search.id = "tl-find";
    search.setAttribute("aria-label", "Search kernels by name, op or layer");
    var found = document.getElementById("tl-search").appendChild(element("span", "", "mp-note"));
    found.id = "tl-found";
    var colour = document.getElementById("tl-colour");
    var legend = document.getElementById("tl-legend");
    var data = null;
    var base = null;
    var from = null;
    var to = null;
    var picked = -1;
    var kernel = null; /* the picked one, once it is known */
    var ofLayer = {}; /* the colours that layers were given so far */
    var asked = 0;
    var timer = null;
    var drawing = false;
    var hits = [];

    function url(run, window_, width) {
      var asking = new URLSearchParams({ run: run, width: String(width), colour: colour.value });
      if (search.value.trim()) asking.set("search", search.value.trim());
      Object.keys(window_).forEach(function (key) {
        if (window_[key] !== null && window_[key] !== undefined) asking.set(key, String(Math.round(window_[key])));
      });
      return "/timeline.json?" + asking.toString();
    }
    function width() {
      return Math.max(50, root.clientWidth - NAMES);
    }
    function load(window_) {
      var mine = ++asked;
      fetch(url(root.dataset.run, window_, width()))
        .then(function (answer) {
          return answer.status === 200 ? answer.json() : Promise.reject(answer.status);
        })
        .then(function (got) {
          if (mine !== asked) return;
          data = got;
          from = got.from_ns;
          to = got.to_ns;
          steps.value = String(got.step);
          explain();
          loadBase(mine);
          draw();
          remember();
          root.dataset.drawn = String(mine);
        })
        .catch(function (error) {
          say("The timeline could not be loaded (" + error + ").");
        });
    }
    function stepAt(ns) {
      var low = 0;
      var high = data.steps.length - 1;
      while (low < high) {
        var middle = (low + high + 1) >> 1;
        if (data.steps[middle].start_ns <= ns) low = middle;
        else high = middle - 1;
      }
      return low;
    }
    function loadBase(mine) {
      if (!root.dataset.baseline) return;
      var step = data.steps[data.step];
      var first = base
        ? Promise.resolve(base.whole)
        : fetch(url(root.dataset.baseline, {}, 1)).then(function (answer) {
            return answer.status === 200 ? answer.json() : null;
          });
      first
        .then(function (whole) {
          if (!whole) return null;
          var origin = whole.steps[whole.step].start_ns;
          var window_ = { from: origin + from - step.start_ns, to: origin + to - step.start_ns };
          if (window_.to <= 0) return null;
          return fetch(url(root.dataset.baseline, window_, width()))
            .then(function (answer) {
              return answer.status === 200 ? answer.json() : null;
            })
            .then(function (got) {
              return got && { whole: whole, shown: got, shift: step.start_ns - origin };
            });
        })
        .then(function (got) {
          if (mine !== asked) return;
          base = got || base;
          draw();
          root.dataset.base = String(mine);
        })
        .catch(function () {});
    }
    function remember() {
      if (!data) return;
      var now = query();
      if (now.get("run") !== root.dataset.chosen) return; /* the reader has gone on, and this page is still shown */
      now.set("step", String(data.step));
      now.set("t0", String(Math.round(from)));
      now.set("t1", String(Math.round(to)));
      if (picked >= 0) now.set("kernel", String(picked));
      else now.delete("kernel");
      if (colour.value !== "placement") now.set("colour", colour.value);
      else now.delete("colour");
      window.history.replaceState(window.history.state, "", window.location.pathname + "?" + now.toString());
    }
    function move(newFrom, newTo) {
      if (!data) return;
      var last = data.steps[data.steps.length - 1].end_ns;
      var length = Math.min(Math.max(newTo - newFrom, 200), last);
      newFrom = Math.min(Math.max(newFrom, 0), last - length);
      from = newFrom;
      to = newFrom + length;
      draw();
      clearTimeout(timer);
      timer = setTimeout(again, 70);
    }
    function zoom(factor, at) {
      var middle = at === undefined ? (from + to) / 2 : at;
      if (at === undefined && kernel && kernel.start_ns >= from && kernel.start_ns < to) middle = kernel.start_ns;
      move(middle - (middle - from) * factor, middle + (to - middle) * factor);
    }
    function lanes() {
      if (!data) return [];
      var all = data.lanes.map(function (lane) {
        return { lane: lane, of: data, shift: 0, name: lane.name };
      });
      if (base && base.shown) {
        var device = base.shown.lanes[0];
        all.splice(1, 0, { lane: device, of: base.shown, shift: base.shift, name: "Baseline" });
      }
      return all;
    }
    function draw() {
      if (drawing) return;
      drawing = true;
      window.requestAnimationFrame(function () {
        drawing = false;
        paint();
      });
    }
    function paint() {
      if (!data || !root.isConnected) return;
      var style = getComputedStyle(document.documentElement);
      var ink = style.getPropertyValue("--mp-ink").trim();
      var soft = style.getPropertyValue("--mp-soft").trim();
      var line = style.getPropertyValue("--mp-line").trim();
      var ground = style.getPropertyValue("--mp-page").trim();
      var rows = lanes();
      var height = AXIS + rows.reduce(function (sum, row) {
        return sum + HEIGHTS[row.lane.kind] + GAP;
      }, 0);
      var ratio = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(root.clientWidth * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(root.clientWidth * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.height = height + "px";
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, root.clientWidth, height);
      context.font = "12px " + getComputedStyle(root).fontFamily;
      context.textBaseline = "middle";
      var perNs = width() / (to - from);
      ticks(perNs, height, soft, line);
      var term = search.value.trim().toLowerCase();
      hits = [];
      var y = AXIS;
      rows.forEach(function (row) {
        var tall = HEIGHTS[row.lane.kind];
        context.fillStyle = soft;
        context.fillText(cut(row.name, NAMES - 10), 0, y + tall / 2);
        context.fillStyle = ground;
        context.fillRect(NAMES, y, width(), tall);
        context.save();
        context.beginPath();
        context.rect(NAMES, y, width(), tall);
        context.clip();
        var lane = row.lane;
        for (var i = 0; i < lane.start_ns.length; i++) {
          var begin = lane.start_ns[i] + row.shift;
          var end = begin + lane.length_ns[i];
          if (end < from || begin > to) continue;
          var x = NAMES + (begin - from) * perNs;
          var w = Math.max((end - begin) * perNs, 0.6);
          var key = row.of.keys[lane.key[i]];
          var name = lane.label[i] >= 0 ? row.of.names[lane.label[i]] : "";
          var paint_ = hue(key);
          var dim = term && !(lane.found && lane.found[i]) ? 0.22 : 1;
          var quiet = w > 3 && theme.quiet[key];
          context.globalAlpha = dim * (quiet || 1);
          context.fillStyle = paint_;
          context.fillRect(x, y, w - (w > 3 ? 0.5 : 0), tall);
          context.globalAlpha = dim;
          if (quiet) {
            context.strokeStyle = paint_;
            context.lineWidth = 1;
            context.strokeRect(x + 0.5, y + 0.5, w - 1.5, tall - 1);
          }
          if (w > 3 && unknown(key)) {
            context.fillStyle = hatching();
            context.fillRect(x, y, w - 0.5, tall);
          }
          if (w > 34) {
            context.fillStyle = quiet ? ink : theme.text[paint_];
            var left = Math.max(x, NAMES);
            var room = Math.min(x + w, NAMES + width()) - left - 8;
            if (room > 24) context.fillText(cut(name ? short(name) : label(key) + " " + duration(end - begin), room), left + 4, y + tall / 2);
          }
          if (row.of === data) hits.push([x, w, y, tall, lane, i]);
        }
        context.globalAlpha = 1;
        if (kernel && row.of === data && (lane.kind === "device" || lane.name === kernel.stream)) {
          context.strokeStyle = ink;
          context.lineWidth = 2;
          var left_ = NAMES + (kernel.start_ns - from) * perNs;
          context.strokeRect(left_, y + 1, Math.max(kernel.duration_ns * perNs, 3), tall - 2);
        }
        context.restore();
        y += tall + GAP;
      });
      if (kernel && kernel.launch_to_start_ns !== null) arrow(rows, perNs, ink);
      found.textContent = term && data.found !== undefined ? data.found.toLocaleString("en") + " found" : "";
    }
    function arrow(rows, perNs, ink) {
      /* From the launch on the host to the kernel on the device. */
      var at = { device: 0, host: 0 };
      var y = AXIS;
      rows.forEach(function (row) {
        if (row.of === data && !at[row.lane.kind]) at[row.lane.kind] = y + HEIGHTS[row.lane.kind] / 2;
        y += HEIGHTS[row.lane.kind] + GAP;
      });
      if (!at.host) return;
      context.save();
      context.beginPath();
      context.rect(NAMES, AXIS, width(), y);
      context.clip();
      context.strokeStyle = ink;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(NAMES + (kernel.start_ns - kernel.launch_to_start_ns - from) * perNs, at.host);
      context.lineTo(NAMES + (kernel.start_ns - from) * perNs, at.device);
      context.stroke();
      context.restore();
    }
    function hue(key) {
      if (theme.colours[key]) return theme.colours[key];
      if (key.indexOf("layer/") !== 0) return theme.colours.other;
      if (!(key in ofLayer)) ofLayer[key] = Object.keys(ofLayer).length;
      return theme.layers[ofLayer[key] % theme.layers.length];
    }
    function label(key) {
      return theme.labels[key] || key.slice(key.indexOf("/") + 1);
    }
    function unknown(key) {
      return key === "unknown" || /\/unknown(\/|$)/.test(key);
    }
    var hatched = null;
    function hatching() {
      if (hatched) return hatched;
      var tile = document.createElement("canvas");
      tile.width = tile.height = 8;
      var on = tile.getContext("2d");
      on.strokeStyle = "rgba(23, 32, 43, 0.45)";
      on.moveTo(0, 0);
      on.lineTo(8, 8);
      on.moveTo(8, 0);
      on.lineTo(0, 8);
      on.stroke();
      return (hatched = context.createPattern(tile, "repeat"));
    }
    function explain() {
      /* The legend: by placement what is always the same, else what the work is told apart by. */
      var work = ["matrix_unit", "off_matrix_unit", "other", "copy", "unknown"];
      var own = data.keys.filter(function (key) {
        return theme.lanes.indexOf(key) < 0 && key.indexOf("class/idle_") < 0;
      });
      var shown = theme.legend;
      if (own.length) shown = own.concat(shown.filter(function (key) { return work.indexOf(key) < 0; }));
      var said = shown.join(" ");
      if (legend.dataset.shown === said) return;
      legend.dataset.shown = said;
      legend.replaceChildren();
      shown.forEach(function (key) {
        var item = legend.appendChild(element("li"));
        item.appendChild(element("span", undefined, "mp-swatch" + (unknown(key) ? " mp-k-unknown" : ""))).style.setProperty("--k", hue(key));
        item.appendChild(document.createTextNode(label(key)));
      });
    }
    function short(name) {
      return name.replace(/^.*StatefulPartitionedCall\//, "").replace(/^void\s+/, "");
    }
    function cut(text, room) {
      if (context.measureText(text).width <= room) return text;
      var low = 0;
      var high = text.length;
      while (low < high) {
        var middle = (low + high + 1) >> 1;
        if (context.measureText(text.slice(0, middle) + "\u2026").width <= room) low = middle;
        else high = middle - 1;
      }
      return low > 1 ? text.slice(0, low) + "\u2026" : "";
    }
    function ticks(perNs, height, soft, line) {
      var rough = 110 / perNs;
      var power = Math.pow(10, Math.floor(Math.log10(rough)));
      var step = [1, 2, 5, 10].map(function (m) { return m * power; }).filter(function (s) { return s >= rough; })[0];
      var origin = data.steps[data.step].start_ns;
      context.lineWidth = 1;
      for (var t = Math.ceil((from - origin) / step) * step; t <= to - origin; t += step) {
        var x = NAMES + (t + origin - from) * perNs;
        context.strokeStyle = line;
        context.beginPath();
        context.moveTo(x + 0.5, AXIS - 4);
        context.lineTo(x + 0.5, height);
        context.stroke();
        context.fillStyle = soft;
        context.fillText(t === 0 ? "0" : duration(t), x + 3, AXIS / 2 - 2);
      }
      context.strokeStyle = soft;
      data.steps.forEach(function (each) {
        var x = NAMES + (each.start_ns - from) * perNs;
        if (x < NAMES || x > NAMES + width()) return;
        context.beginPath();
        context.moveTo(x + 0.5, 0);
        context.lineTo(x + 0.5, height);
        context.stroke();
      });
    }
    function at(event) {
      var box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }
    function under(event) {
      var p = at(event);
      for (var i = hits.length - 1; i >= 0; i--) {
        var h = hits[i];
        if (p[0] >= h[0] - 1 && p[0] <= h[0] + h[1] + 1 && p[1] >= h[2] && p[1] <= h[2] + h[3]) return h;
      }
      return null;
    }
    function say(text) {
      panel.replaceChildren(element("p", text));
    }
    function entitle(text) {
      panel.replaceChildren(element("h3", text, "mp-panel-title"), element("dl"));
    }
    function line(name, value) {
      if (value === null || value === undefined || value === "") return;
      var row = panel.lastChild.appendChild(element("div", undefined, "mp-panel-row"));
      row.appendChild(element("dt", name));
      row.appendChild(element("dd", value));
    }
    function pick(row) {
      picked = row;
      kernel = null;
      remember();
      draw();
      if (row < 0) {
        panel.replaceChildren();
        return;
      }
      fetch("/kernel.json?" + new URLSearchParams({ run: root.dataset.run, row: String(row) }).toString())
        .then(function (answer) {
          return answer.status === 200 ? answer.json() : Promise.reject(answer.status);
        })
        .then(function (got) {
          if (picked === row) show(got);
        })
        .catch(function (error) {
          say("The kernel could not be loaded (" + error + ").");
        });
    }
    function show(got) {
      kernel = got;
      draw();
      entitle(kernel.name);
      line("ran on", (theme.places[kernel.placement] || kernel.placement) + (kernel.precision === "unknown" ? "" : ", " + kernel.precision));
      line("because", kernel.reason.text);
      line("took", duration(kernel.duration_ns));
      line("layer", kernel.layer);
      line("phase", kernel.phase);
      line("op", kernel.op && short(kernel.op));
      line("shapes", kernel.shapes);
      line("launched by", kernel.launched_by);
      line("launch to start", kernel.launch_to_start_ns === null ? null : duration(kernel.launch_to_start_ns));
      line("stream", kernel.stream);
      line("details", kernel.details);
    }
    function follow(back) {
      /* The next kernel, of those that are searched for; what lies outside the window is moved to. */
      if (!data) return;
      var asking = new URLSearchParams({ run: root.dataset.run, search: search.value.trim(), from: String(Math.round(from)) });
      if (picked >= 0) asking.set("row", String(picked));
      if (back) asking.set("back", "1");
      fetch("/next.json?" + asking.toString())
        .then(function (answer) {
          return answer.status === 200 ? answer.json() : answer.status === 204 ? null : Promise.reject(answer.status);
        })
        .then(function (got) {
          if (!got) return say("No kernel was found.");
          picked = got.row;
          show(got);
          var half = (to - from) / 2;
          if (got.start_ns < from || got.start_ns > to) move(got.start_ns - half, got.start_ns + half);
          remember();
        })
        .catch(function (error) {
          say("The kernel could not be loaded (" + error + ").");
        });
    }
    function save() {
      var asking = new URLSearchParams({ run: root.dataset.run, from: String(Math.round(from)), to: String(Math.round(to)) });
      fetch("/trace.json?" + asking.toString())
        .then(function (answer) {
          if (answer.status !== 200) return answer.text().then(function (text) { return Promise.reject(text); });
          return answer.blob();
        })
        .then(function (blob) {
          var link = element("a");
          link.href = URL.createObjectURL(blob);
          link.download = "mpprof-trace.json";
          link.click();
          setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
          say("Saved as mpprof-trace.json: open it in ui.perfetto.dev.");
        })
        .catch(function (error) {
          say("Nothing was saved: " + error);
        });
    }
    function tell(hit) {
      var lane = hit[4];
      var i = hit[5];
      picked = -1;
      kernel = null;
      remember();
      draw();
      entitle(label(data.keys[lane.key[i]]));
      line("took", duration(lane.length_ns[i]));
      line("on", lane.name);
      if (lane.count[i] > 1) line("events", String(lane.count[i]) + " merged: zoom in");
    }
    var dragged = null;
    canvas.addEventListener("pointerdown", function (event) {
      dragged = { x: event.clientX, from: from, to: to, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", function (event) {
      if (!dragged) {
        var hit = under(event);
        canvas.title = hit && hit[4].label[hit[5]] >= 0 ? data.names[hit[4].label[hit[5]]] : "";
        return;
      }
      var by = event.clientX - dragged.x;
      if (Math.abs(by) > 3) dragged.moved = true;
      if (dragged.moved) {
        var ns = (by * (dragged.to - dragged.from)) / width();
        move(dragged.from - ns, dragged.to - ns);
      }
    });
    canvas.addEventListener("pointerup", function (event) {
      var was = dragged;
      dragged = null;
      if (!was || was.moved) return;
      var hit = under(event);
      if (!hit) return;
      if (hit[4].row[hit[5]] >= 0) pick(hit[4].row[hit[5]]);
      else tell(hit);
    });
    canvas.addEventListener(
      "wheel",
      function (event) {
        event.preventDefault();
        var p = (at(event)[0] - NAMES) / width();
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          var ns = (event.deltaX * (to - from)) / width();
          move(from + ns, to + ns);
        } else zoom(Math.exp(Math.min(Math.max(event.deltaY, -200), 200) / 400), from + p * (to - from));
      },
      { passive: false }
    );
    root.addEventListener("keydown", function (event) {
      var part = (to - from) / 8;
      var does = {
        w: function () { zoom(0.7); },
        s: function () { zoom(1 / 0.7); },
        "+": function () { zoom(0.7); },
        "-": function () { zoom(1 / 0.7); },
        a: function () { move(from - part, to - part); },
        d: function () { move(from + part, to + part); },
        ArrowLeft: function () { move(from - part, to - part); },
        ArrowRight: function () { move(from + part, to + part); },
        Home: function () { whole(); },
        "0": function () { whole(); },
        n: function () { follow(false); },
        p: function () { follow(true); },
        Enter: function () { follow(false); },
        "/": function () { search.focus(); },
        Escape: function () { pick(-1); },
      }[event.key];
      if (does && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        does();
      }
    });
    function whole() {
      load({ step: Number(steps.value) });
    }
    steps.addEventListener("change", whole);
    document.getElementById("tl-whole").addEventListener("click", whole);
    document.getElementById("tl-all").addEventListener("click", function () {
      move(0, data.steps[data.steps.length - 1].end_ns);
    });
    document.getElementById("tl-save").addEventListener("click", save);
    colour.addEventListener("change", again);
    var typed = null;
    search.addEventListener("input", function () {
      clearTimeout(typed);
      typed = setTimeout(again, 150);
    });
    function again() {
      if (data) load({ from: from, to: to, step: stepAt((from + to) / 2) });
    }
    search.addEventListener("keydown", function (event) {
      if (event.key === "Escape") root.focus();
      if (event.key === "Enter") follow(event.shiftKey);
    });
    new ResizeObserver(draw).observe(root);
    new MutationObserver(draw).observe(document.documentElement, { attributes: true });
    var asks = query();
    if (asks.has("colour")) colour.value = asks.get("colour");
    if (!colour.value) colour.value = "placement";
    var opened = { step: asks.has("step") ? Number(asks.get("step")) : null };
    if (asks.has("t0") && asks.has("t1")) {
      opened.from = Number(asks.get("t0")) || 0;
      opened.to = Number(asks.get("t1")) || 0;
    }
    load(opened);
    if (asks.has("kernel")) pick(Number(asks.get("kernel")));
  }

  function look() {
    var root = document.getElementById("timeline");
    if (root && !root.dataset.started) start(root);
  }
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
})();
