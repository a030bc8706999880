// Before the first paint: say that scripts run, and take the theme the reader chose last.
(function () {
  "use strict";
  var root = document.documentElement;
  root.classList.add("js");
  try {
    var theme = localStorage.getItem("attest-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch (error) {
    // storage is off: the system's theme stays
  }
})();
