/* The timeline: a canvas that shows a window of the run. The server merges what is shorter than a pixel, so that
   what is drawn is bounded by the width of the screen, however large the trace is. */
(function () {
  "use strict";
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
  function element(tag, text, className) {
    var made = document.createElement(tag);
    if (text !== undefined) made.textContent = text; /* names are text, never markup */
    if (className) made.className = className;
    return made;
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
    search.setAttribute("aria-label", "Search kernels by name");
    var found = document.getElementById("tl-search").appendChild(element("span", "", "mp-note"));
    found.id = "tl-found";
    var data = null;
    var base = null;
    var from = null;
    var to = null;
    var picked = -1;
    var asked = 0;
    var timer = null;
    var drawing = false;
    var hits = [];

    function url(run, window_, width) {
      var asking = new URLSearchParams({ run: run, width: String(width) });
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
          loadBase(mine);
          draw();
          remember();
          root.dataset.drawn = String(mine);
        })
        .catch(function (error) {
          panel.textContent = "The timeline could not be loaded (" + error + ").";
        });
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
        })
        .catch(function () {});
    }
    function remember() {
      var now = query();
      now.set("t0", String(Math.round(from)));
      now.set("t1", String(Math.round(to)));
      if (picked >= 0) now.set("kernel", String(picked));
      else now.delete("kernel");
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
      timer = setTimeout(function () {
        load({ from: from, to: to });
      }, 70);
    }
    function zoom(factor, at) {
      var middle = at === undefined ? (from + to) / 2 : at;
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
      var matched = 0;
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
          var match = term && name.toLowerCase().indexOf(term) >= 0;
          if (match && lane.kind === "device" && row.of === data) matched += lane.count[i];
          context.globalAlpha = term && !match ? 0.22 : 1;
          context.fillStyle = theme.colours[key];
          context.fillRect(x, y, w - (w > 3 ? 0.5 : 0), tall);
          if (picked >= 0 && lane.row[i] === picked && row.of === data) {
            context.strokeStyle = ink;
            context.lineWidth = 2;
            context.strokeRect(x, y + 1, Math.max(w, 3), tall - 2);
          }
          if (w > 34) {
            var pale = key.indexOf("idle_") === 0 || key === "sync" || key === "host" || key === "copy" || key === "unknown";
            context.fillStyle = pale ? "#17202b" : "#ffffff";
            var left = Math.max(x, NAMES);
            var room = Math.min(x + w, NAMES + width()) - left - 8;
            if (room > 24) context.fillText(cut(name ? short(name) : theme.labels[key] + " " + duration(end - begin), room), left + 4, y + tall / 2);
          }
          if (row.of === data) hits.push([x, w, y, tall, lane, i]);
        }
        context.restore();
        context.globalAlpha = 1;
        y += tall + GAP;
      });
      found.textContent = term ? matched + " found" : "";
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
    function line(name, value) {
      if (value === null || value === undefined || value === "") return;
      var row = panel.appendChild(element("div", undefined, "mp-panel-row"));
      row.appendChild(element("dt", name));
      row.appendChild(element("dd", value));
    }
    function pick(row) {
      picked = row;
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
        .then(function (kernel) {
          if (picked !== row) return;
          panel.replaceChildren(element("h3", kernel.name, "mp-panel-title"));
          line("ran on", (theme.places[kernel.placement] || kernel.placement) + (kernel.precision === "unknown" ? "" : ", " + kernel.precision));
          line("because", kernel.reason.text);
          line("took", duration(kernel.duration_ns));
          line("layer", kernel.layer);
          line("phase", kernel.phase);
          line("op", kernel.op);
          line("shapes", kernel.shapes);
          line("launched by", kernel.launched_by);
          line("launch to start", kernel.launch_to_start_ns === null ? null : duration(kernel.launch_to_start_ns));
          line("stream", kernel.stream);
          line("details", kernel.details);
        })
        .catch(function (error) {
          panel.textContent = "The kernel could not be loaded (" + error + ").";
        });
    }
    function tell(hit) {
      var lane = hit[4];
      var i = hit[5];
      picked = -1;
      remember();
      draw();
      panel.replaceChildren(element("h3", theme.labels[data.keys[lane.key[i]]], "mp-panel-title"));
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
    search.addEventListener("input", draw);
    search.addEventListener("keydown", function (event) {
      if (event.key === "Escape") root.focus();
      if (event.key === "Enter") next();
    });
    function next() {
      var term = search.value.trim().toLowerCase();
      var lane = data.lanes[0];
      for (var i = 0; i < lane.row.length; i++) {
        var name = lane.label[i] >= 0 ? data.names[lane.label[i]].toLowerCase() : "";
        var after = !dragged && (picked < 0 || lane.row[i] > picked);
        if (term && after && name.indexOf(term) >= 0) return pick(lane.row[i]);
      }
    }
    new ResizeObserver(draw).observe(root);
    new MutationObserver(draw).observe(document.documentElement, { attributes: true });
    var asks = query();
    if (asks.has("t0") && asks.has("t1")) load({ from: Number(asks.get("t0")) || 0, to: Number(asks.get("t1")) || 0 });
    else load({ step: asks.has("step") ? Number(asks.get("step")) : null });
    if (asks.has("kernel")) pick(Number(asks.get("kernel")));
  }

  function look() {
    var root = document.getElementById("timeline");
    if (root && !root.dataset.started) start(root);
  }
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
})();
