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
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
