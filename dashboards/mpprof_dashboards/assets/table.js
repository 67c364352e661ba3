/* Tables: rows come from the server, a hundred at a time, already filtered, sorted and in words. Filters and the
   order are kept in the address, so that a link shows what was looked at and a refresh loses nothing. */
(function () {
  "use strict";
  var element = window.mpprof.element;
  function start(root) {
    root.dataset.started = root.dataset.asks;
    root.dataset.shown = root.dataset.version;
    var columns = JSON.parse(root.dataset.columns);
    var prefix = root.id + ".";
    var state = { sort: root.dataset.sort, filters: {} };
    var kept = new URLSearchParams(window.location.search);
    kept.forEach(function (value, key) {
      if (key === prefix + "sort") state.sort = value;
      else if (key.indexOf(prefix) === 0) state.filters[key.slice(prefix.length)] = value;
    });
    var loaded = 0;
    var found = 0;
    var held = false;
    var busy = null;
    var timer = null;

    var bar = element("div", undefined, "mp-rows-bar");
    var count = bar.appendChild(element("span", "", "mp-note"));
    count.setAttribute("role", "status");
    var clear = bar.appendChild(element("button", "clear filters", "mp-button"));
    var save = bar.appendChild(element("a", "CSV", "mp-button"));
    save.setAttribute("download", "");
    var area = element("div", undefined, "mp-rows-area");
    var box = area.appendChild(element("div", undefined, "mp-rows-scroll"));
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", root.dataset.label);
    var panel = area.appendChild(element("aside", undefined, "mp-panel mp-rows-panel"));
    panel.setAttribute("aria-live", "polite");
    panel.setAttribute("aria-label", "The chosen row");
    panel.hidden = true;
    var table = box.appendChild(element("table", undefined, "mp-rows-table"));
    var head = table.appendChild(element("thead"));
    var body = table.appendChild(element("tbody"));
    var titles = head.appendChild(element("tr"));
    var fields = head.appendChild(element("tr", undefined, "mp-rows-filters"));
    columns.forEach(function (column, at) {
      var cell = titles.appendChild(element("th", undefined, column.number ? "mp-number" : ""));
      cell.scope = "col";
      var button = cell.appendChild(element("button", column.header));
      button.addEventListener("click", function () {
        var down = "-" + column.field;
        var first = column.number ? down : column.field;
        var second = column.number ? column.field : down;
        state.sort = state.sort === first ? second : state.sort === second ? root.dataset.sort : first;
        reload();
      });
      var under = fields.appendChild(element("td", undefined, column.number ? "mp-number" : ""));
      var input = under.appendChild(element("input"));
      input.type = "search";
      input.dataset.field = column.field;
      input.setAttribute("aria-label", "Filter " + column.header + (column.hint ? ": " + column.hint : ""));
      if (column.hint) input.title = column.hint;
      input.value = state.filters[column.field] || "";
      if (at === 1) input.dataset.first = "1"; /* where "/" leads */
      input.addEventListener("input", function () {
        if (input.value.trim()) state.filters[column.field] = input.value;
        else delete state.filters[column.field];
        clearTimeout(timer);
        timer = setTimeout(reload, 120);
      });
    });
    root.replaceChildren(bar, area);

    function query(more) {
      var asking = new URLSearchParams(root.dataset.asks);
      if (state.sort) asking.set("sort", state.sort);
      Object.keys(state.filters).forEach(function (key) {
        asking.set("f." + key, state.filters[key]);
      });
      Object.keys(more || {}).forEach(function (key) {
        asking.set(key, more[key]);
      });
      return asking.toString();
    }
    function remember() {
      var address = new URLSearchParams(window.location.search);
      Array.from(address.keys()).forEach(function (key) {
        if (key.indexOf(prefix) === 0) address.delete(key);
      });
      if (state.sort !== root.dataset.sort) address.set(prefix + "sort", state.sort);
      Object.keys(state.filters).forEach(function (key) {
        if (key !== "only") address.set(prefix + key, state.filters[key]);
      });
      window.history.replaceState(window.history.state, "", window.location.pathname + "?" + address.toString());
    }
    function hold(widths) {
      /* Fields do not move while rows are filtered away. */
      Array.from(titles.children).forEach(function (cell, at) {
        cell.style.minWidth = widths ? widths[at] + "px" : "";
      });
      held = !!widths;
    }
    function reload() {
      if (!held && Object.keys(state.filters).length && found)
        hold(Array.from(titles.children, function (cell) { return cell.getBoundingClientRect().width; }));
      remember();
      load(0);
    }
    function load(from) {
      if (busy) busy.abort();
      var mine = (busy = new AbortController());
      fetch(window.mpprof.at("/rows.json?") + query({ from: String(from) }), { signal: mine.signal })
        .then(function (answer) {
          return answer.status === 200 ? answer.json() : Promise.reject(answer.status);
        })
        .then(function (got) {
          if (busy !== mine) return;
          busy = null;
          show(got, from);
        })
        .catch(function (error) {
          if (error && error.name === "AbortError") return;
          if (busy === mine) busy = null; /* scrolling asks again */
          count.textContent = "The rows could not be loaded (" + error + ").";
        });
    }
    function show(got, from) {
      if (!from) {
        body.replaceChildren();
        box.scrollTop = 0;
      }
      got.rows.forEach(add);
      if (got.total && !got.found) {
        var none = body.appendChild(element("tr", undefined, "mp-rows-none"));
        none.appendChild(element("td", "nothing matches")).colSpan = columns.length;
      }
      loaded = from + got.rows.length;
      found = got.found;
      var filtered = Object.keys(state.filters).length > 0;
      count.textContent =
        found.toLocaleString("en") + (found === got.total ? "" : " of " + got.total.toLocaleString("en")) +
        (got.total === 1 ? " row" : " rows") +
        (state.filters.cause ? " of " + state.filters.cause : ""); /* a link from Why */
      clear.hidden = !filtered;
      if (!filtered) hold(null);
      save.href = window.mpprof.at("/rows.csv?") + query();
      Array.from(titles.children).forEach(function (cell, at) {
        var field = columns[at].field;
        if (state.sort === field) cell.setAttribute("aria-sort", "ascending");
        else if (state.sort === "-" + field) cell.setAttribute("aria-sort", "descending");
        else cell.removeAttribute("aria-sort");
      });
      root.dataset.loaded = query({ from: String(from) });
      root.dataset.found = String(found);
    }
    function add(row) {
      var line = body.appendChild(element("tr"));
      line.dataset.key = row.key;
      columns.forEach(function (column, at) {
        var cell = line.appendChild(element("td", undefined, column.number ? "mp-number" : ""));
        cell.dataset.field = column.field;
        if (column.dot) cell.appendChild(element("span", undefined, "mp-swatch mp-k-" + row.kind));
        if (column.bar) {
          var mark = cell.appendChild(element("span", undefined, "mp-cell-bar mp-k-" + row.kind));
          mark.style.setProperty("--w", String(row.bar));
          row.parts.forEach(function (part) {
            mark.appendChild(element("i", undefined, "mp-k-" + part[0])).style.width = 100 * part[1] + "%";
          });
        }
        var text = row.cells[at];
        if (at === 1 && row.more.length) {
          var opener = cell.appendChild(element("button", text, "mp-row-name"));
          opener.setAttribute("aria-expanded", "false");
        } else cell.appendChild(element("span", text));
        cell.title = row.titles[at] || (column.number ? "" : text);
      });
      if (row.more.length)
        line.addEventListener("click", function () {
          if (String(window.getSelection())) return;
          open(line, row);
        });
    }
    function open(line, row) {
      var was = line.classList.contains("mp-row-open");
      body.querySelectorAll(".mp-row-open").forEach(function (other) {
        other.classList.remove("mp-row-open");
        other.querySelector("[aria-expanded]").setAttribute("aria-expanded", "false");
      });
      panel.hidden = was;
      if (was) return;
      hold(null);
      line.classList.add("mp-row-open");
      line.querySelector("[aria-expanded]").setAttribute("aria-expanded", "true");
      var list = element("dl");
      row.more.forEach(function (pair) {
        var one = list.appendChild(element("div", undefined, "mp-panel-row"));
        one.appendChild(element("dt", pair[0]));
        one.appendChild(element("dd", pair[1]));
      });
      panel.replaceChildren(element("h3", row.titles[1] || row.cells[1], "mp-panel-title"), list);
    }
    box.addEventListener("scroll", function () {
      if (!busy && loaded < found && box.scrollTop + box.clientHeight > box.scrollHeight - 400) load(loaded);
    });
    clear.addEventListener("click", function () {
      state.filters = {};
      fields.querySelectorAll("input").forEach(function (input) {
        input.value = "";
      });
      reload();
    });
    root.addEventListener("mp-only", function (event) {
      if (event.detail.length) state.filters.only = event.detail.join(" ");
      else delete state.filters.only;
      load(0);
    });
    root.addEventListener("mp-again", function () {
      load(0);
    });
    if (Object.keys(state.filters).length || state.sort !== root.dataset.sort) load(0);
    else show(JSON.parse(root.dataset.first), 0);
  }
  function look() {
    document.querySelectorAll(".mp-rows").forEach(function (root) {
      if (root.dataset.started !== root.dataset.asks) start(root);
      else if (String(root.dataset.version) !== root.dataset.shown) {
        root.dataset.shown = root.dataset.version;
        root.dispatchEvent(new CustomEvent("mp-again"));
      }
    });
  }
  new MutationObserver(look).observe(document.documentElement, {
    childList: true, subtree: true, attributes: true, attributeFilter: ["data-asks", "data-version"],
  });
})();
