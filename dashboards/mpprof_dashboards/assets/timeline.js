/* The timeline: a canvas that shows a window of the run. The server merges what is shorter than a pixel, so that
   what is drawn is bounded by the width of the screen, however large the trace is. */
(function () {
  "use strict";
  var element = window.mpprof.element;
  var GAP = 6;
  var HEIGHTS = { device: 46, host: 26, stream: 22, thread: 18 };
  var OVER = 16; /* of the strip above, which shows all steps and where the window lies */
  var AXIS = OVER + 22;
  var STEP_ROOM = 8; /* pixels between two marks of where a step begins: closer ones would hide the work */
  var CALL = 15; /* a row of events of the host by name */
  var NARROW = 640; /* Narrower drawings have the names of lanes above them. */
  var ABOVE = 16;
  var UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]];

  function query() {
    return new URLSearchParams(window.location.search);
  }
  function duration(ns) {
    for (var i = 0; i < UNITS.length; i++)
      if (Math.abs(ns) >= UNITS[i][0] * 0.9995 || i === 3) {
        var value = ns / UNITS[i][0];
        return value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2) + " " + UNITS[i][1];
      }
  }
  function percent(ratio) {
    var value = 100 * ratio;
    if (value === 0 || value >= 99.95) return (value >= 100 ? 100 : value ? 99.9 : 0) + " %";
    return value < 0.01 ? "<0.01 %" : value.toFixed(value < 1 ? 2 : 1) + " %";
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
    var spanned = document.getElementById("tl-search").appendChild(element("span", "", "mp-unseen"));
    spanned.id = "tl-span";
    spanned.setAttribute("role", "status");
    var colour = document.getElementById("tl-colour");
    var legend = document.getElementById("tl-legend");
    var waits = document.getElementById("tl-waits");
    var left = 118; /* where the lanes begin, beside their names */
    var above = 0;
    var data = null;
    var base = null;
    var whole_ = null; /* all steps, for the strip above */
    var marks = []; /* two points, between which is measured */
    var from = null;
    var to = null;
    var picked = -1;
    var kernel = null; /* the picked one, once it is known */
    var met = {}; /* the keys that were shown so far */
    var named = []; /* top, bottom and name of each lane */
    var ofLayer = {}; /* the colours that layers were given so far */
    var asked = 0;
    var timer = null;
    var drawing = false;
    var hits = [];

    function url(run, window_, width, device) {
      var asking = new URLSearchParams({ run: run, width: String(width), colour: colour.value });
      if (search.value.trim()) asking.set("search", search.value.trim());
      if (device) asking.set("only", "device");
      Object.keys(window_).forEach(function (key) {
        if (window_[key] !== null && window_[key] !== undefined) asking.set(key, String(Math.round(window_[key])));
      });
      return window.mpprof.at("/timeline.json?") + asking.toString();
    }
    function width() {
      return Math.max(50, root.clientWidth - left);
    }
    /* Asked for beside the run's own window, and not after it. */
    var baseline =
      root.dataset.baseline &&
      fetch(url(root.dataset.baseline, {}, 1, true))
        .then(function (answer) {
          return answer.status === 200 ? answer.json() : null;
        })
        .catch(function () {
          return null;
        });
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
          tellWaits();
          loadBase(mine);
          loadWhole();
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
    function last() {
      return data.steps[data.steps.length - 1].end_ns;
    }
    function loadWhole() {
      if (whole_) return;
      whole_ = { lanes: [] };
      fetch(url(root.dataset.run, { from: 0, to: last() }, width(), true))
        .then(function (answer) {
          return answer.status === 200 ? answer.json() : whole_;
        })
        .then(function (got) {
          whole_ = got;
          draw();
        })
        .catch(function () {});
    }
    function overview(ink, ground) {
      /* All steps in a strip; what lies outside the window is pale. */
      var per = width() / last();
      context.fillStyle = ground;
      context.fillRect(left, 0, width(), OVER - 4);
      var lane = whole_ && whole_.lanes[0];
      for (var i = 0; lane && i < lane.start_ns.length; i++) {
        context.globalAlpha = lane.start_ns[i] + lane.length_ns[i] < from || lane.start_ns[i] > to ? 0.35 : 1;
        marked(lane, i, whole_.keys, left + lane.start_ns[i] * per, Math.max(lane.length_ns[i] * per, 0.6), 0, OVER - 4);
      }
      context.globalAlpha = 1;
      context.strokeStyle = ink;
      context.lineWidth = 1.5;
      context.strokeRect(left + from * per + 0.75, 0.75, Math.max((to - from) * per - 1.5, 2), OVER - 5.5);
    }
    function measured(perNs, height, ink, ground) {
      /* What lies between two points; a lone one waits for the other. */
      if (!marks.length) return;
      var ends = marks.map(function (ns) { return left + (ns - from) * perNs; }).sort(function (a, b) { return a - b; });
      context.save();
      context.beginPath();
      context.rect(left, OVER, width(), height);
      context.clip();
      context.strokeStyle = ink;
      context.lineWidth = 1;
      ends.forEach(function (x) {
        context.beginPath();
        context.moveTo(x + 0.5, OVER);
        context.lineTo(x + 0.5, height);
        context.stroke();
      });
      if (ends.length === 2) {
        context.globalAlpha = 0.12;
        context.fillStyle = ink;
        context.fillRect(ends[0], OVER, ends[1] - ends[0], height);
        var said = duration(Math.abs(marks[1] - marks[0]));
        var wide = context.measureText(said).width;
        var at_ = Math.min(Math.max((ends[0] + ends[1] - wide) / 2, left + 4), left + width() - wide - 4);
        context.globalAlpha = 1;
        context.fillStyle = ground;
        context.fillRect(at_ - 4, OVER, wide + 8, AXIS - OVER - 2);
        context.fillStyle = ink;
        context.fillText(said, at_, (OVER + AXIS) / 2 - 1);
      }
      context.restore();
    }
    function tellMarks() {
      var said = marks.length === 2 ? "between the marks: " + duration(Math.abs(marks[1] - marks[0]))
        : marks.length ? "one mark is set; m sets the other" : "";
      spanned.textContent = said;
    }
    function mark(ns) {
      marks = marks.length === 1 ? [marks[0], ns] : [ns];
      tellMarks();
      draw();
    }
    function loadBase(mine) {
      if (!root.dataset.baseline) return;
      var step = data.steps[data.step];
      baseline
        .then(function (whole) {
          if (!whole) return null;
          var origin = whole.steps[whole.step].start_ns;
          var window_ = { from: origin + from - step.start_ns, to: origin + to - step.start_ns };
          /* Beside one step stands one step, not the beginning of the next. */
          if (from >= step.start_ns && to <= step.end_ns) window_.to = Math.min(window_.to, whole.steps[whole.step].end_ns);
          if (window_.to <= Math.max(0, window_.from)) return null;
          return fetch(url(root.dataset.baseline, window_, width(), true))
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
          explain();
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
      var length = Math.min(Math.max(newTo - newFrom, 200), last());
      newFrom = Math.min(Math.max(newFrom, 0), last() - length);
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
      return all.filter(function (row) { /* a stream or thread that does nothing here takes no room */
        return row.lane.start_ns.length || /^(device|host)$/.test(row.lane.kind);
      });
    }
    function empty() {
      return data.lanes.filter(function (lane) { return !lane.start_ns.length && /^(stream|thread)$/.test(lane.kind); });
    }
    function deep(lane) {
      return lane.calls ? Math.max.apply(null, lane.calls.depth) + 1 : 0;
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
      var font = "12px " + getComputedStyle(root).fontFamily;
      context.font = font;
      measure(rows);
      var height = AXIS;
      rows.forEach(function (row) {
        row.y = height + above;
        height = row.y + HEIGHTS[row.lane.kind] + CALL * deep(row.lane) + GAP;
      });
      var folded = empty();
      if (folded.length) height += CALL;
      var ratio = window.devicePixelRatio || 1;
      if (canvas.width !== Math.round(root.clientWidth * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(root.clientWidth * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.height = height + "px";
      }
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, root.clientWidth, height);
      context.font = font;
      context.textBaseline = "middle";
      var perNs = width() / (to - from);
      overview(ink, ground);
      ticks(perNs, height, soft, line);
      if (folded.length) {
        context.fillStyle = soft;
        var names = folded.map(function (lane) { return lane.name; }).join(", ");
        context.fillText(cut("nothing here: " + names, root.clientWidth - 8), 0, height - CALL / 2);
      }
      var term = search.value.trim().toLowerCase();
      hits = [];
      named = [];
      rows.forEach(function (row) {
        var tall = HEIGHTS[row.lane.kind];
        var y = row.y;
        named.push([y - above, y + (above ? 0 : tall), row.name]);
        context.fillStyle = soft;
        context.fillText(cut(row.name, (above ? width() : left) - 10), above ? 4 : 0, above ? y - above / 2 : y + tall / 2);
        context.fillStyle = ground;
        context.fillRect(left, y, width(), tall);
        context.save();
        context.beginPath();
        context.rect(left, y, width(), tall + CALL * deep(row.lane));
        context.clip();
        var lane = row.lane;
        for (var i = 0; i < lane.start_ns.length; i++) {
          var begin = lane.start_ns[i] + row.shift;
          var end = begin + lane.length_ns[i];
          if (end < from || begin > to) continue;
          var x = left + (begin - from) * perNs;
          var w = Math.max((end - begin) * perNs, 0.6);
          var key = row.of.keys[lane.key[i]];
          var name = lane.label[i] >= 0 ? row.of.names[lane.label[i]] : "";
          var paint_ = hue(key);
          var dim = term && !(lane.found && lane.found[i]) ? 0.22 : 1;
          var quiet = w > 3 && theme.quiet[key];
          context.globalAlpha = dim * (quiet || 1);
          marked(lane, i, row.of.keys, x, w - (w > 3 ? 0.5 : 0), y, tall);
          context.globalAlpha = dim;
          var edge = quiet ? paint_ : w > 3 && theme.edges[paint_];
          if (edge) {
            context.strokeStyle = edge;
            context.lineWidth = 1;
            context.strokeRect(x + 0.5, y + 0.5, w - 1.5, tall - 1);
          }
          if (w > 3 && unknown(key)) {
            context.fillStyle = hatching();
            context.fillRect(x, y, w - 0.5, tall);
          }
          if (w > 34) {
            context.fillStyle = quiet ? ink : theme.text[paint_];
            var begins = Math.max(x, left);
            var room = Math.min(x + w, left + width()) - begins - 8;
            if (room > 24) context.fillText(cut(name ? bare(name) : label(key) + " " + duration(end - begin), room), begins + 4, y + tall / 2);
          }
          if (row.of === data) hits.push([x, w, y, tall, lane, i]);
        }
        context.globalAlpha = 1;
        if (row.of !== data) goesOn(row, y, tall, ink, ground);
        if (lane.calls && row.of === data) calls(lane, y + tall, perNs, ink, line, ground);
        if (kernel && row.of === data && (lane.kind === "device" || lane.name === kernel.stream)) {
          context.strokeStyle = ink;
          context.lineWidth = 2;
          context.strokeRect(
            left + (kernel.start_ns - from) * perNs, y + 1, Math.max(kernel.duration_ns * perNs, 3), tall - 2
          );
        }
        context.restore();
      });
      if (kernel && kernel.launch_to_start_ns !== null) arrow(rows, perNs, ink);
      measured(perNs, height, ink, ground);
      found.textContent = term && data.found !== undefined ? data.found.toLocaleString("en") + " found" : "";
    }
    function marked(lane, i, keys, x, w, y, tall) {
      /* What is merged into a pixel, each kind as tall as its share: most of it alone would hide the rest. */
      var shares = (lane.mixed && lane.mixed[i]) || [[lane.key[i], 1]];
      var top = y + tall;
      shares.forEach(function (share) {
        top -= share[1] * tall;
        context.fillStyle = hue(keys[share[0]]);
        context.fillRect(x, top, w, share[1] * tall);
      });
    }
    function goesOn(row, y, tall, ink, ground) {
      /* The baseline's step that ends beyond this run's, where the drawing ends with this run's. */
      var step = base.whole.steps[base.whole.step];
      var cut_ = to >= data.steps[data.step].end_ns && step.start_ns + row.shift >= from && step.end_ns + row.shift > to;
      root.dataset.beyond = cut_ ? duration(step.end_ns - step.start_ns) : "";
      if (!cut_) return;
      var said = "goes on to " + root.dataset.beyond + " \u25b8";
      var wide = context.measureText(said).width + 8;
      context.fillStyle = ground;
      context.fillRect(left + width() - wide, y, wide, tall);
      context.fillStyle = ink;
      context.fillText(said, left + width() - wide + 4, y + tall / 2);
    }
    function calls(lane, y, perNs, ink, line, ground) {
      /* What the thread did by name, each event below the one that it lies in. */
      var own = lane.calls;
      for (var i = 0; i < own.start_ns.length; i++) {
        var x = left + (own.start_ns[i] - from) * perNs;
        var w = own.length_ns[i] * perNs;
        var top = y + own.depth[i] * CALL;
        context.fillStyle = ground;
        context.fillRect(x, top + 1, w, CALL - 1);
        context.strokeStyle = line;
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, top + 1.5, w - 1, CALL - 2);
        context.fillStyle = ink;
        var begins = Math.max(x, left);
        var room = Math.min(x + w, left + width()) - begins - 6;
        if (room > 12) context.fillText(cut(data.names[own.label[i]], room), begins + 3, top + CALL / 2 + 1);
        hits.push([x, w, top, CALL, lane, i, own]);
      }
    }
    function arrow(rows, perNs, ink) {
      /* From the launch on the host to the kernel on the device. */
      function middle(kind) {
        var row = rows.filter(function (each) { return each.of === data && each.lane.kind === kind; })[0];
        return row && row.y + HEIGHTS[kind] / 2;
      }
      var host = middle("host");
      if (!host) return;
      context.save();
      context.beginPath();
      context.rect(left, AXIS, width(), canvas.height);
      context.clip();
      context.strokeStyle = ink;
      context.lineWidth = 1.5;
      context.beginPath();
      context.moveTo(left + (kernel.start_ns - kernel.launch_to_start_ns - from) * perNs, host);
      context.lineTo(left + (kernel.start_ns - from) * perNs, middle("device"));
      context.stroke();
      context.restore();
    }
    function measure(rows) {
      above = root.clientWidth < NARROW ? ABOVE : 0;
      var longest = rows.reduce(function (most, row) {
        return Math.max(most, context.measureText(row.name).width);
      }, 60);
      left = above ? 0 : Math.ceil(Math.min(longest + 12, 0.18 * root.clientWidth));
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
      /* The legend: what was met so far, so that it grows and never jumps; what looks the same on the host is one. */
      [data, base && base.shown].forEach(function (each) {
        if (each)
          each.lanes.forEach(function (lane) {
            if (each === data || lane.kind === "device") lane.key.forEach(function (key) { met[each.keys[key]] = true; });
            if (each === data) Object.keys(lane.mixed || {}).forEach(function (at) {
              lane.mixed[at].forEach(function (share) { met[each.keys[share[0]]] = true; });
            });
          });
      });
      var own = data.keys.slice(data.keys.indexOf("host") + 1);
      var known = theme.lanes.filter(function (key) { return !own.length || theme.work.indexOf(key) < 0; });
      var looks = {};
      own.concat(known).forEach(function (key) {
        if (!met[key]) return;
        var look = own.indexOf(key) < 0 ? hue(key) + (theme.quiet[key] ? " quiet" : "") : key;
        (looks[look] = looks[look] || []).push(key);
      });
      var said = JSON.stringify(looks);
      if (legend.dataset.shown === said) return;
      legend.dataset.shown = said;
      legend.replaceChildren();
      Object.keys(looks).forEach(function (look) {
        var key = looks[look][0];
        var item = legend.appendChild(element("li"));
        var kind = unknown(key) ? " mp-k-unknown" : theme.quiet[key] ? " mp-swatch-quiet" : "";
        var swatch = item.appendChild(element("span", undefined, "mp-swatch" + kind));
        swatch.style.setProperty("--k", hue(key));
        if (theme.edges[hue(key)]) swatch.style.border = "1px solid " + theme.edges[hue(key)];
        item.appendChild(document.createTextNode(looks[look].map(label).join(", ")));
      });
    }
    function tellWaits() {
      /* Where the device waits, and for what; a click shows the longest wait. */
      if (!waits || !data.waits) return;
      var length = to - from;
      var total = data.waits.reduce(function (sum, wait) { return sum + wait.total_ns; }, 0);
      var step = data.steps[data.step];
      var here = step.start_ns === from && step.end_ns === to ? "this step of " : "this window of ";
      waits.replaceChildren(element("span", "In " + here + duration(length) + " the device "));
      var sum = total ? "waits " + duration(total) + " (" + percent(total / length) + "):" : "does not wait.";
      waits.appendChild(element("strong", sum));
      data.waits.forEach(function (wait) {
        var button = waits.appendChild(element("button", undefined, "mp-button mp-wait"));
        button.dataset.key = wait.key;
        button.dataset.ns = String(wait.total_ns);
        button.title = "Show the longest";
        button.appendChild(element("span", undefined, "mp-swatch")).style.setProperty("--k", hue(wait.key));
        var text = label(wait.key).replace(/^(waiting|idle,) /, "") + " " + duration(wait.total_ns);
        if (wait.count > 1)
          text += " in " + wait.count.toLocaleString("en") + " waits, longest " + duration(wait.end_ns - wait.start_ns);
        var begins = wait.start_ns - step.start_ns;
        button.appendChild(document.createTextNode(text + " at " + (begins ? duration(begins) : "0")));
        button.addEventListener("click", function () {
          var around = 0.15 * (wait.end_ns - wait.start_ns);
          move(wait.start_ns - around, wait.end_ns + around);
        });
      });
    }
    function short(name) {
      return name.replace(/^.*StatefulPartitionedCall\//, "").replace(/^void\s+/, "");
    }
    function bare(name) {
      /* A kernel without return type, namespaces, parameters and template arguments. */
      var own = /^cutlass::Kernel2?<(\w+)/.exec(short(name)); /* CUTLASS names them all alike */
      if (own) return own[1];
      var head = short(name).replace(/\(anonymous namespace\)::/g, "").split(/[<(]/)[0];
      return head.indexOf("/") >= 0 ? short(name) : head.slice(head.lastIndexOf("::") < 0 ? 0 : head.lastIndexOf("::") + 2) || name;
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
      /* As close as the labels allow, which have the digits that tell one from the next. */
      var origin = data.steps[data.step].start_ns;
      var most = Math.max(Math.abs(from - origin), Math.abs(to - origin));
      var unit = UNITS.filter(function (each) { return most >= each[0]; })[0] || UNITS[3];
      var decades = Math.round(Math.log10(unit[0]));
      var labels = [];
      var step, digits;
      function text(t) {
        return t === 0 ? "0" : (t / unit[0]).toFixed(digits) + " " + unit[1];
      }
      for (var power = Math.max(0, Math.floor(Math.log10((to - from) / 100))); !step; power++) {
        digits = Math.max(0, decades - power);
        var room = Math.max(context.measureText(text(from - origin)).width, context.measureText(text(to - origin)).width) + 10;
        step = [1, 2, 4, 5].map(function (m) { return m * Math.pow(10, power); }).filter(function (s) { return s * perNs >= room; })[0];
      }
      context.lineWidth = 1;
      for (var n = Math.ceil((from - origin) / step); n * step <= to - origin; n++) {
        var x = left + (n * step + origin - from) * perNs;
        context.strokeStyle = line;
        context.beginPath();
        context.moveTo(x + 0.5, AXIS - 4);
        context.lineTo(x + 0.5, height);
        context.stroke();
        context.fillStyle = soft;
        if (x + 3 + context.measureText(text(n * step)).width > left + width()) continue;
        context.fillText(text(n * step), x + 3, (OVER + AXIS) / 2 - 2);
        labels.push(text(n * step));
      }
      root.dataset.ticks = JSON.stringify(labels);
      context.strokeStyle = soft;
      var each_ = Math.max(1, Math.ceil((STEP_ROOM * data.steps.length) / (last() * perNs)));
      data.steps.forEach(function (each, nth) {
        var x = left + (each.start_ns - from) * perNs;
        if (nth % each_ || x < left || x > left + width()) return;
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
    function titleAt(event) {
      /* Whole, where the drawing has no room: a kernel's name, what another interval is, a lane's name. */
      var hit = under(event);
      if (hit) {
        var lane = hit[6] || hit[4];
        var i = hit[5];
        return lane.label[i] >= 0 ? data.names[lane.label[i]] : label(data.keys[lane.key[i]]) + " " + duration(lane.length_ns[i]);
      }
      var p = at(event);
      var name = named.filter(function (each) { return p[1] >= each[0] && p[1] <= each[1] && (above || p[0] < left); })[0];
      return name ? name[2] : "";
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
      fetch(window.mpprof.at("/kernel.json?") + new URLSearchParams({ run: root.dataset.run, row: String(row) }).toString())
        .then(function (answer) {
          return answer.status === 200 ? answer.json() : answer.status === 204 ? null : Promise.reject(answer.status);
        })
        .then(function (got) {
          if (got && picked === row) show(got);
          else if (!got) say("This trace has no such kernel.");
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
      fetch(window.mpprof.at("/next.json?") + asking.toString())
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
      fetch(window.mpprof.at("/trace.json?") + asking.toString())
        .then(function (answer) {
          if (answer.status !== 200) return answer.text().then(function (text) { return Promise.reject(text); });
          return answer.blob();
        })
        .then(function (blob) {
          var link = element("a");
          link.href = URL.createObjectURL(blob);
          link.download = window.mpprof.file("trace", "json");
          link.click();
          setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
          say("Saved as " + link.download + ": open it in ui.perfetto.dev.");
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
      var own = hit[6] || lane;
      entitle(hit[6] ? data.names[own.label[i]] : label(data.keys[lane.key[i]]));
      line("took", duration(own.length_ns[i]));
      line("on", lane.name);
      if (!hit[6] && lane.count[i] > 1) line("events", String(lane.count[i]) + " merged: zoom in");
    }
    var dragged = null;
    canvas.addEventListener("pointerdown", function (event) {
      if (!data) return;
      dragged = { x: event.clientX, from: from, to: to, moved: false, over: at(event)[1] < OVER, measures: event.shiftKey };
      if (dragged.over) centre(event);
      if (dragged.measures && !dragged.over) marks = [instant(event)];
      canvas.setPointerCapture(event.pointerId);
    });
    function instant(event) {
      return from + ((at(event)[0] - left) / width()) * (to - from);
    }
    function centre(event) {
      var middle = ((at(event)[0] - left) / width()) * last();
      move(middle - (to - from) / 2, middle + (to - from) / 2);
    }
    canvas.addEventListener("pointermove", function (event) {
      if (!dragged) {
        canvas.title = titleAt(event);
        return;
      }
      if (dragged.over) return centre(event);
      if (dragged.measures) {
        marks = [marks[0], instant(event)];
        tellMarks();
        draw();
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
      if (!was || was.moved || was.over || was.measures) return;
      var hit = under(event);
      if (!hit) return;
      if (!hit[6] && hit[4].row[hit[5]] >= 0) pick(hit[4].row[hit[5]]);
      else tell(hit);
    });
    canvas.addEventListener(
      "wheel",
      function (event) {
        event.preventDefault();
        var p = (at(event)[0] - left) / width();
        if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
          var ns = (event.deltaX * (to - from)) / width();
          move(from + ns, to + ns);
        } else zoom(Math.exp(Math.min(Math.max(event.deltaY, -200), 200) / 400), from + p * (to - from));
      },
      { passive: false }
    );
    function acts() {
      var part = (to - from) / 8;
      return {
        w: function () { zoom(0.7); },
        s: function () { zoom(1 / 0.7); },
        "+": function () { zoom(0.7); },
        "-": function () { zoom(1 / 0.7); },
        a: function () { move(from - part, to - part); },
        d: function () { move(from + part, to + part); },
        "0": function () { whole(); },
        n: function () { follow(false); },
        p: function () { follow(true); },
        m: function () { mark(kernel ? kernel.start_ns : (from + to) / 2); },
        Escape: function () {
          if (!marks.length) return pick(-1);
          marks = [];
          tellMarks();
          draw();
        },
      };
    }
    function act(event, does) {
      if (!data || !does || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      does();
    }
    root.addEventListener("keydown", function (event) {
      /* Keys that mean something elsewhere: only where the drawing has the focus. */
      var keys = acts();
      act(event, {
        ArrowLeft: keys.a,
        ArrowRight: keys.d,
        Home: keys["0"],
        Enter: keys.n,
        "/": function () { search.focus(); },
      }[event.key]);
    });
    document.addEventListener("keydown", function pressed(event) {
      if (!root.isConnected) return document.removeEventListener("keydown", pressed);
      if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || document.querySelector("dialog[open]")) return;
      act(event, acts()[event.key]);
    });
    function whole() {
      load({ step: Number(steps.value) });
    }
    steps.addEventListener("change", whole);
    document.getElementById("tl-whole").addEventListener("click", whole);
    document.getElementById("tl-in").addEventListener("click", function () {
      zoom(0.5);
    });
    document.getElementById("tl-out").addEventListener("click", function () {
      zoom(2);
    });
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
    window.addEventListener("beforeprint", paint); /* the paper does not wait for a frame */
    new MutationObserver(draw).observe(document.documentElement, { attributes: true });
    var asks = query();
    if (asks.has("colour")) colour.value = asks.get("colour");
    if (!colour.value) colour.value = "placement";
    var opened = { step: asks.has("step") ? Number(asks.get("step")) : null };
    if (asks.has("t0") && asks.has("t1")) {
      opened.from = Number(asks.get("t0"));
      opened.to = Number(asks.get("t1"));
    }
    load(opened); /* the server shows the step where these are no window */
    if (/^\d{1,15}$/.test(asks.get("kernel"))) pick(Number(asks.get("kernel")));
  }

  function look() {
    var root = document.getElementById("timeline");
    if (root && !root.dataset.started) start(root);
  }
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
})();
