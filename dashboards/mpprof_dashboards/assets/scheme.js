/* Before anything is drawn: the stored colour scheme, for the page and for the tables. */
(function () {
  "use strict";
  var root = document.documentElement;
  var stored = null;
  try {
    stored = window.localStorage.getItem("mantine-color-scheme-value");
  } catch (error) {
    /* storage is switched off: follow the system */
  }
  var dark =
    stored === "dark" ||
    (stored !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  root.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
  function follow() {
    if (document.body) {
      document.body.dataset.agThemeMode =
        root.getAttribute("data-mantine-color-scheme") === "dark" ? "dark" : "light";
    }
  }
  new MutationObserver(follow).observe(root, {
    attributes: true,
    attributeFilter: ["data-mantine-color-scheme"],
  });
  document.addEventListener("DOMContentLoaded", follow);
})();
