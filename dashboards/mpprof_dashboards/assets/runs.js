/* Runs: the list is asked for again every few seconds (204: nothing changed); what needs a run's trace is asked
   for when its row comes into view. Every number comes from the server in words; only lengths are set here. */
(function () {
  "use strict";
  var element = window.mpprof.element;
  var REFRESH_MS = 5000;
  var AT_ONCE = 2;
  var SVG = "http://www.w3.org/2000/svg";
  var COLUMNS = [
    ["", "choose"], ["Run", "name"], ["Policy", "policy"], ["Card", "card"], ["Batch", "batch", 1],
    ["Step", "step", 1], ["Speedup of attainable", "speedup"], ["Tensor Cores", "share", 1],
    ["First cause", "cause"], ["Skips", "skipped", 1], ["Peak", "peak", 1], ["Step times", "spark"],
    ["State", "state"], ["Written", "written", 1],
  ];
  function start(root) {
    root.dataset.started = "1";
    var version = "";
    var chosen = [];
    var known = {}; /* by run and when it was written: what its row says */
    var rows = {};
    var queue = [];
    var asking = 0;
    var compare = document.getElementById("runs-compare");
    var worst = document.getElementById("runs-worst");
    var box = root.appendChild(element("div", undefined, "mp-scroll"));
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Runs");
    var table = box.appendChild(element("table", undefined, "mp-runs-table"));
    var head = table.appendChild(element("thead")).appendChild(element("tr"));
    COLUMNS.forEach(function (column) {
      var cell = head.appendChild(element(column[0] ? "th" : "td", column[0], column[2] ? "mp-number" : ""));
      if (column[0]) cell.scope = "col";
      cell.dataset.field = column[1];
    });
    var seen = new IntersectionObserver(function (changes) {
      changes.forEach(function (change) {
        var line = change.target;
        if (!change.isIntersecting) return;
        seen.unobserve(line);
        var at = queue.indexOf(line.dataset.run);
        if (at > 0) queue.unshift(queue.splice(at, 1)[0]); /* what is in view comes first */
      });
    });

    function poll() {
      if (!root.isConnected) return;
      fetch("/runs.json?version=" + encodeURIComponent(version))
        .then(function (answer) {
          root.dataset.polls = String(Number(root.dataset.polls || 0) + 1);
          if (answer.status === 204) return null;
          return answer.status === 200 ? answer.json() : Promise.reject(answer.status);
        })
        .then(function (got) {
          if (!got) return;
          version = got.version;
          draw(got.groups);
        })
        .catch(function () {
          root.dataset.gone = "1"; /* the server may be back at the next turn */
        })
        .finally(function () {
          setTimeout(poll, REFRESH_MS);
        });
    }
    function draw(groups) {
      var focused = document.activeElement && document.activeElement.id;
      rows = {};
      queue = [];
      Array.from(table.tBodies).forEach(function (body) {
        body.remove();
      });
      groups.forEach(function (group) {
        var body = table.appendChild(element("tbody"));
        var several = group.runs.length > 1;
        if (several) {
          var title = body.appendChild(element("tr", undefined, "mp-runs-group"));
          body.className = "mp-runs-of";
          var cell = title.appendChild(element("th", group.name));
          cell.colSpan = COLUMNS.length;
          cell.scope = "rowgroup";
        }
        group.runs.forEach(function (run) {
          body.appendChild(row(run, several ? run.short : run.name));
        });
      });
      root.dataset.drawn = version;
      rank();
      requestAnimationFrame(next); /* when it is known what is in view */
      if (focused && document.getElementById(focused)) document.getElementById(focused).focus();
    }
    function row(run, shown) {
      var line = element("tr");
      line.dataset.run = run.id;
      rows[run.id] = { line: line, run: run };
      COLUMNS.forEach(function (column) {
        var cell = line.appendChild(element("td", undefined, column[2] ? "mp-number" : ""));
        cell.dataset.field = column[1];
      });
      var name = part(line, "name");
      if (run.problem) {
        name.appendChild(element("span", shown, "mp-strong"));
        name.title = run.name;
        var why = part(line, "policy");
        why.colSpan = COLUMNS.length - 2;
        why.className = "mp-runs-problem";
        why.textContent = "cannot be read: " + run.problem;
        why.title = run.problem;
        while (why.nextSibling) why.nextSibling.remove();
        return line;
      }
      var tick = part(line, "choose").appendChild(element("input"));
      tick.type = "checkbox";
      tick.id = "choose-" + run.id;
      tick.setAttribute("aria-label", "Choose " + run.name);
      tick.checked = chosen.indexOf(run.id) >= 0;
      tick.addEventListener("change", function () {
        chosen = chosen.filter(function (id) { return id !== run.id; });
        if (tick.checked) chosen.push(run.id);
        link();
      });
      var to = name.appendChild(element("a", shown));
      to.href = "/" + run.query;
      name.title = run.name;
      ["policy", "card", "batch", "written"].forEach(function (field) {
        part(line, field).textContent = part(line, field).title = run[field];
      });
      part(line, "state").appendChild(element("span", run.state, "mp-chip mp-state-" + run.state));
      var key = run.id + " " + run.written_ns + " " + run.baseline;
      if (known[key]) fill(line, known[key]);
      else {
        line.setAttribute("aria-busy", "true");
        queue.push(run.id);
        seen.observe(line);
      }
      return line;
    }
    function part(line, field) {
      return line.querySelector('[data-field="' + field + '"]');
    }
    function next() {
      while (asking < AT_ONCE && queue.length) ask(queue.shift());
    }
    function ask(id) {
      var held = rows[id];
      if (!held) return;
      var run = held.run;
      var asks = new URLSearchParams({ run: id, baseline: run.baseline || "" });
      asking += 1;
      fetch("/run.json?" + asks.toString())
        .then(function (answer) {
          return answer.status === 200 ? answer.json() : answer.text().then(function (text) { throw new Error(text); });
        })
        .then(function (got) {
          known[id + " " + run.written_ns + " " + run.baseline] = got;
          if (rows[id]) fill(rows[id].line, got);
        })
        .catch(function (error) {
          if (rows[id]) {
            part(rows[id].line, "cause").textContent = error.message;
            rows[id].line.removeAttribute("aria-busy");
          }
        })
        .finally(function () {
          asking -= 1;
          rank();
          next();
        });
    }
    function fill(line, got) {
      line.removeAttribute("aria-busy");
      ["step", "share", "skipped", "peak", "cause"].forEach(function (field) {
        part(line, field).textContent = got[field];
      });
      part(line, "cause").title = got.cause;
      var speedup = part(line, "speedup");
      speedup.replaceChildren();
      if (got.observed !== null) {
        var bullet = speedup.appendChild(element("span", undefined, "mp-bullet"));
        var bar = bullet.appendChild(element("span", undefined, "mp-bullet-got"));
        bar.style.setProperty("--v", String(got.observed));
        if (got.attainable !== null) {
          var reach = bullet.appendChild(element("span", undefined, "mp-bullet-reach"));
          reach.style.setProperty("--v", String(got.attainable));
        }
      }
      speedup.appendChild(element("strong", got.speedup));
      speedup.appendChild(element("span", got.of, "mp-note"));
      var spark = part(line, "spark");
      spark.replaceChildren();
      if (got.spark.length) {
        var drawing = document.createElementNS(SVG, "svg");
        drawing.setAttribute("viewBox", "0 0 100 20");
        drawing.setAttribute("preserveAspectRatio", "none");
        drawing.setAttribute("class", "mp-spark");
        drawing.setAttribute("aria-hidden", "true");
        var path = document.createElementNS(SVG, "polyline");
        path.setAttribute("points", got.spark.map(function (point) {
          return 100 * point[0] + "," + (19 - 18 * point[1]);
        }).join(" "));
        drawing.appendChild(path);
        spark.appendChild(drawing);
      }
      line.dataset.missed = got.observed && got.attainable ? String(got.attainable / got.observed) : "";
      line.dataset.speedup = got.speedup + " " + got.of;
      line.dataset.filled = "1";
    }
    function rank() {
      var most = 1;
      table.querySelectorAll(".mp-bullet > *").forEach(function (bar) {
        most = Math.max(most, Number(bar.style.getPropertyValue("--v")));
      });
      table.style.setProperty("--most", String(most));
      var first = null;
      table.querySelectorAll("tr[data-missed]").forEach(function (line) {
        line.classList.remove("mp-runs-first");
        if (Number(line.dataset.missed) > 1.05 && (!first || Number(line.dataset.missed) > Number(first.dataset.missed)))
          first = line;
      });
      worst.replaceChildren();
      if (!first) return;
      first.classList.add("mp-runs-first");
      var held = rows[first.dataset.run];
      worst.appendChild(element("span", "Furthest below its attainable speedup: "));
      var to = worst.appendChild(element("a", held.run.name));
      to.href = "/" + held.run.query;
      worst.appendChild(element("span", ", " + first.dataset.speedup + " attainable."));
    }
    function link() {
      var float32 = chosen.filter(function (id) { return rows[id] && rows[id].run.single; });
      var rest = chosen.filter(function (id) { return float32.indexOf(id) < 0; });
      var all = float32.concat(rest);
      var asks = new URLSearchParams();
      if (all.length) asks.set("run", all[all.length - 1]);
      if (all.length > 1) asks.set("baseline", all[0]);
      all.forEach(function (id) { asks.append("with", id); });
      compare.href = "/compare?" + asks.toString();
      compare.textContent = chosen.length < 2 ? "choose two or more to compare" : "compare " + chosen.length + " runs";
      compare.setAttribute("aria-disabled", chosen.length < 2 ? "true" : "false");
    }
    compare.addEventListener("click", function (event) {
      if (chosen.length < 2) event.preventDefault();
    });
    link();
    poll();
  }
  function look() {
    var root = document.getElementById("runs");
    if (root && !root.dataset.started) start(root);
  }
  new MutationObserver(look).observe(document.documentElement, { childList: true, subtree: true });
})();
