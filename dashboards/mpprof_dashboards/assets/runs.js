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
    ["Step", "step", 1], ["Answer", "speedup"], ["Tensor Cores", "share", 1],
    ["Why", "cause"], ["Skips", "skipped", 1], ["Peak", "peak", 1], ["Step times", "spark"],
    ["State", "state"], ["Written", "written", 1],
  ];
  var FIRST_UP = ["name", "policy", "card", "cause", "state"]; /* the others are sorted from the largest */
  var LEAST_GAIN = 1.05;
  var LONGEST = 30; /* letters of a name on one line */
  var SORT = "runs.sort";
  function start(root) {
    root.dataset.started = "1";
    var version = "";
    var chosen = [];
    var listed = [];
    var arranged = "";
    var known = {}; /* by run and when it was written: what its row says */
    var rows = {};
    var queue = [];
    var asking = 0;
    var compare = document.getElementById("runs-compare");
    var worst = document.getElementById("runs-worst");
    var search = document.getElementById("runs-find").appendChild(element("input", undefined, "mp-button mp-runs-search"));
    search.id = "runs-search";
    search.type = "search";
    search.placeholder = "Search runs";
    search.setAttribute("aria-label", "Search runs");
    search.addEventListener("input", sift);
    var box = root.appendChild(element("div", undefined, "mp-scroll"));
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", "Runs");
    var table = box.appendChild(element("table", undefined, "mp-runs-table"));
    var none = root.appendChild(element("p", "No run matches.", "mp-note mp-runs-none"));
    none.hidden = true;
    var head = table.appendChild(element("thead")).appendChild(element("tr"));
    var sort = new URLSearchParams(window.location.search).get(SORT) || "";
    var sorter = document.getElementById("runs-sort");
    sorter.appendChild(element("option", "experiment")).value = "";
    COLUMNS.forEach(function (column) {
      var sorts = column[0] && column[1] !== "spark";
      var text = sorts ? undefined : column[0];
      var cell = head.appendChild(element(column[0] ? "th" : "td", text, column[2] ? "mp-number" : ""));
      if (column[0]) cell.scope = "col";
      cell.dataset.field = column[1];
      if (!sorts) return;
      var up = FIRST_UP.indexOf(column[1]) >= 0;
      var ways = up ? [column[1], "-" + column[1]] : ["-" + column[1], column[1]];
      cell.appendChild(element("button", column[0])).addEventListener("click", function () {
        sortBy(sort === ways[0] ? ways[1] : sort === ways[1] ? "" : ways[0]);
      });
      sorter.appendChild(element("option", column[0])).value = ways[0];
    });
    sorter.addEventListener("change", function () {
      sortBy(sorter.value);
    });
    function sortBy(way) {
      sort = way;
      var address = new URLSearchParams(window.location.search);
      if (sort) address.set(SORT, sort);
      else address.delete(SORT);
      var asked = address.toString();
      window.history.replaceState(window.history.state, "", window.location.pathname + (asked ? "?" + asked : ""));
      arrange();
    }
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
      fetch(window.mpprof.at("/runs.json?version=") + encodeURIComponent(version))
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
      rows = {};
      queue = [];
      listed = groups;
      groups.forEach(function (group) {
        group.runs.forEach(row);
      });
      keepFocus(function () {
        arrange();
        rank();
      });
      root.dataset.drawn = version;
      requestAnimationFrame(next); /* when it is known what is in view */
    }
    function keepFocus(drawAnew) {
      /* What is drawn anew in its place, under the same id, has the focus that it had. */
      var id = document.activeElement && document.activeElement.id;
      drawAnew();
      var now = id && document.getElementById(id);
      if (now && now !== document.activeElement) now.focus({ preventScroll: true });
    }
    function arrange() {
      /* Experiments with their runs, or all runs in one order: those without a value come last either way. */
      var bodies = sort ? [element("tbody")] : listed.map(grouped);
      if (sort) inOrder().forEach(function (held) {
        name(held, held.run.name);
        bodies[0].appendChild(held.line);
      });
      Array.from(table.tBodies).forEach(function (body) {
        body.remove();
      });
      bodies.forEach(function (body) {
        table.appendChild(body);
      });
      Array.from(head.children).forEach(function (cell) {
        var field = cell.dataset.field;
        if (sort === field) cell.setAttribute("aria-sort", "ascending");
        else if (sort === "-" + field) cell.setAttribute("aria-sort", "descending");
        else cell.removeAttribute("aria-sort");
      });
      var longest = Math.max.apply(null, Array.from(table.querySelectorAll("tbody tr[data-run]"), function (line) {
        return part(line, "name").textContent.length;
      }));
      table.style.setProperty("--name", String(Math.min(longest, LONGEST)));
      sorter.value = sort;
      arranged = order();
      sift();
    }
    function sift() {
      /* Rows with every word that is searched for in their name, policy, card, cause or state; an experiment
         without any of them is not shown. */
      var asked = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      var found = 0;
      Object.keys(rows).forEach(function (id) {
        var held = rows[id];
        var of = [held.run.name].concat(["policy", "card", "cause", "state"].map(function (field) {
          var cell = part(held.line, field);
          return cell ? cell.textContent : "";
        })).join(" ").toLowerCase();
        held.line.hidden = !asked.every(function (word) { return of.indexOf(word) >= 0; });
        if (!held.line.hidden) found += 1;
      });
      Array.from(table.tBodies).forEach(function (body) {
        body.hidden = !body.querySelector("tr[data-run]:not([hidden])");
      });
      none.hidden = found > 0 || !asked.length;
    }
    function order() {
      return inOrder().map(function (held) { return held.run.id; }).join("\n");
    }
    function grouped(group) {
      var body = element("tbody");
      var several = group.runs.length > 1;
      if (several) {
        var title = body.appendChild(element("tr", undefined, "mp-runs-group"));
        body.className = "mp-runs-of";
        var cell = title.appendChild(element("th", group.name));
        cell.colSpan = COLUMNS.length;
        cell.scope = "rowgroup";
      }
      group.runs.forEach(function (run) {
        var held = rows[run.id];
        name(held, several ? run.short : run.name);
        body.appendChild(held.line);
      });
      return body;
    }
    function name(held, text) {
      part(held.line, "name").firstChild.textContent = text;
    }
    function inOrder() {
      var down = sort[0] === "-";
      var field = sort.replace("-", "");
      var all = Object.keys(rows).map(function (id) { return rows[id]; });
      function value(held) {
        var known = held.values[field];
        return known === undefined || known === null || known === "\u2014" ? null : known;
      }
      return all.sort(function (one, other) {
        var a = value(one);
        var b = value(other);
        if (a === null || b === null) return (a === null) - (b === null);
        var by = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
        return down ? -by : by;
      });
    }
    function row(run) {
      var line = element("tr");
      line.dataset.run = run.id;
      var held = (rows[run.id] = { line: line, run: run, values: {} });
      COLUMNS.forEach(function (column) {
        var cell = line.appendChild(element("td", undefined, column[2] ? "mp-number" : ""));
        cell.dataset.field = column[1];
      });
      var name = part(line, "name");
      name.title = run.name;
      if (run.problem) {
        unreadable(held, run.problem);
        return;
      }
      held.values = {
        name: run.name, policy: run.policy, card: run.card, state: run.state, batch: run.batch_size,
        written: run.written_ns,
      };
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
      var to = name.appendChild(element("a", run.name));
      to.href = window.mpprof.at("/") + run.query;
      to.id = "open-" + run.id;
      ["policy", "card", "batch", "written"].forEach(function (field) {
        part(line, field).textContent = part(line, field).title = run[field];
      });
      part(line, "state").appendChild(element("span", run.state, "mp-chip mp-state-" + run.state));
      if (run.progress) part(line, "state").appendChild(element("div", run.progress, "mp-note"));
      var key = run.id + " " + run.written_ns + " " + run.baseline;
      if (known[key]) fill(held, known[key]);
      else {
        line.setAttribute("aria-busy", "true");
        queue.push(run.id);
        seen.observe(line);
      }
    }
    function unreadable(held, problem) {
      /* Known when the runs are listed, or only once the trace is read. */
      var line = held.line;
      var shown = part(line, "name").textContent || held.run.name;
      part(line, "choose").replaceChildren();
      part(line, "name").replaceChildren(element("span", shown, "mp-strong"));
      var why = part(line, "policy");
      why.colSpan = COLUMNS.length - 2;
      why.className = "mp-runs-problem";
      why.textContent = "cannot be read: " + problem;
      why.title = problem;
      while (why.nextSibling) why.nextSibling.remove();
      held.values = { name: held.run.name };
      if (chosen.indexOf(held.run.id) < 0) return;
      chosen = chosen.filter(function (id) { return id !== held.run.id; });
      link();
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
      fetch(window.mpprof.at("/run.json?") + asks.toString())
        .then(function (answer) {
          return answer.status === 200 ? answer.json() : answer.text().then(function (text) { throw new Error(text); });
        })
        .then(function (got) {
          known[id + " " + run.written_ns + " " + run.baseline] = got;
          if (rows[id]) fill(rows[id], got);
        })
        .catch(function (error) {
          if (rows[id]) {
            part(rows[id].line, "cause").textContent = error.message;
            rows[id].line.removeAttribute("aria-busy");
          }
        })
        .finally(function () {
          asking -= 1;
          keepFocus(function () {
            rank();
            if (search.value) sift();
            if (sort && order() !== arranged) arrange();
          });
          next();
        });
    }
    function fill(held, got) {
      var line = held.line;
      line.removeAttribute("aria-busy");
      if (got.problem) {
        unreadable(held, got.problem);
        return;
      }
      var measured = got.figure && got.observed !== null; /* an answer without a figure gives no speedup */
      Object.assign(held.values, {
        step: got.step_ns, speedup: measured ? got.observed : null, share: got.share_ratio, cause: got.cause,
        skipped: got.skipped_count, peak: got.peak_bytes,
      });
      ["step", "share", "skipped", "peak", "cause"].forEach(function (field) {
        part(line, field).textContent = got[field];
      });
      part(line, "cause").title = [got.cause, got.why, got.do && "First: " + got.do].filter(Boolean).join("\n");
      part(line, "cause").classList.toggle("mp-note", held.run.is_baseline && got.observed === null);
      var speedup = part(line, "speedup");
      speedup.replaceChildren();
      if (measured) {
        var bullet = speedup.appendChild(element("span", undefined, "mp-bullet"));
        var bar = bullet.appendChild(element("span", undefined, "mp-bullet-got"));
        bar.style.setProperty("--v", String(got.observed));
        if (got.attainable !== null) {
          var reach = bullet.appendChild(element("span", undefined, "mp-bullet-reach"));
          reach.style.setProperty("--v", String(got.attainable));
        }
      }
      speedup.append(" ", element("strong", got.figure || "\u2014"), " "); /* a line breaks, and a voice rests, at a space */
      speedup.appendChild(element("span", held.run.is_baseline && got.observed === null ? "baseline" : got.label, "mp-note"));
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
      held.values.missed = got.observed && got.attainable ? got.attainable / got.observed : null;
      held.values.gain = held.values.missed === null && !held.run.is_baseline ? got.could : null;
      held.said = [got.figure, got.label].filter(Boolean).join(" · ") + (got.figure ? ": " : "") + got.cause;
      line.dataset.filled = "1";
    }
    function rank() {
      var most = 1;
      table.querySelectorAll(".mp-bullet > *").forEach(function (bar) {
        most = Math.max(most, Number(bar.style.getPropertyValue("--v")));
      });
      table.style.setProperty("--most", String(most));
      var all = Object.keys(rows).length;
      var left = queue.length + asking;
      worst.replaceChildren();
      if (left) { /* one that is not read yet may be the one to look at */
        worst.textContent = "Reading " + (all - left) + " of " + all;
        return;
      }
      /* What was measured and what is estimated are not ranked as one. */
      var missed = first("missed");
      var gain = first("gain");
      tell("Look at first: ", missed || gain);
      if (missed) tell(" Of those without a comparable baseline: ", gain);
      Object.keys(rows).forEach(function (id) {
        rows[id].line.classList.toggle("mp-runs-first", rows[id] === (missed || gain));
      });
    }
    function first(what) {
      var most = LEAST_GAIN;
      var found = null;
      Object.keys(rows).forEach(function (id) {
        if (!(rows[id].values[what] > most)) return;
        most = rows[id].values[what];
        found = rows[id];
      });
      return found;
    }
    function tell(text, held) {
      if (!held) return;
      var one = worst.appendChild(element("span", text));
      var to = one.appendChild(element("a", held.run.name));
      to.href = window.mpprof.at("/") + held.run.query;
      to.id = "worst-" + held.run.id;
      one.appendChild(element("span", ", " + held.said + " "));
      var row = one.appendChild(element("button", "show its row", "mp-copy"));
      row.type = "button";
      row.id = "row-" + held.run.id;
      row.addEventListener("click", function () {
        held.line.scrollIntoView({ block: "center" });
        held.line.querySelector("a").focus();
      });
    }
    function link() {
      var float32 = chosen.filter(function (id) { return rows[id] && rows[id].run.single; });
      var rest = chosen.filter(function (id) { return float32.indexOf(id) < 0; });
      var all = float32.concat(rest);
      var asks = new URLSearchParams();
      if (all.length) asks.set("run", all[all.length - 1]);
      if (all.length > 1) asks.set("baseline", all[0]);
      all.forEach(function (id) { asks.append("with", id); });
      compare.href = window.mpprof.at("/compare?") + asks.toString();
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
