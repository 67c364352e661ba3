/* Before anything is drawn: the stored colour scheme, so that a dark page never flashes white. */
(function () {
  "use strict";
  var stored = null;
  try {
    stored = window.localStorage.getItem("mantine-color-scheme-value");
  } catch (error) {
    /* storage is switched off: follow the system */
  }
  var dark =
    stored === "dark" ||
    (stored !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  var root = document.documentElement;
  root.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
  /* Paper is light, also for what takes its colours when it is drawn. */
  var shown = null;
  window.addEventListener("beforeprint", function () {
    shown = root.getAttribute("data-mantine-color-scheme");
    root.setAttribute("data-mantine-color-scheme", "light");
  });
  window.addEventListener("afterprint", function () {
    if (shown) root.setAttribute("data-mantine-color-scheme", shown);
  });
})();
