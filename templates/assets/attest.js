// State in the address, theme, and buttons that copy. Everything works from disk; nothing is fetched.
var attest = (function () {
  "use strict";
  var root = document.body.dataset.root;

  /** An element with properties and children; text is always text. */
  function make(tag, properties, children) {
    var element = document.createElement(tag);
    Object.entries(properties || {}).forEach(function (entry) {
      if (entry[0] in element && entry[0] !== "list") element[entry[0]] = entry[1];
      else element.setAttribute(entry[0], entry[1]);
    });
    (children || []).forEach(function (child) { element.append(child); });
    return element;
  }

  // State: `#claims.q=delta&claims.sort=-3`. A part without `=` is an ordinary anchor.
  var listeners = [];

  function read() {
    var text = location.hash.slice(1);
    return new URLSearchParams(text.includes("=") ? text : "");
  }

  function get(key) { return read().get(key); }

  function set(changes) {
    var state = read();
    Object.entries(changes).forEach(function (entry) {
      if (entry[1] === null || entry[1] === "") state.delete(entry[0]);
      else state.set(entry[0], entry[1]);
    });
    var text = state.toString().replaceAll("%2C", ",");
    history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
  }

  function onState(listener) { listeners.push(listener); listener(); }

  window.addEventListener("hashchange", function () {
    if (location.hash.includes("=") || location.hash === "") listeners.forEach(function (listener) { listener(); });
  });

  /** Load a script of the site once; then call back. */
  var loading = {};
  function load(path, then) {
    if (loading[path] === true) return then();
    if (loading[path]) return void loading[path].push(then);
    loading[path] = [then];
    var script = make("script", { src: root + path });
    script.onload = function () {
      var waiting = loading[path];
      loading[path] = true;
      waiting.forEach(function (call) { call(); });
    };
    document.head.append(script);
  }

  function copy(text, button) {
    var label = button.textContent;
    function done(ok) {
      button.textContent = ok ? "Copied" : "Select and copy by hand";
      setTimeout(function () { button.textContent = label; }, 1600);
    }
    function byHand() {
      var area = make("textarea", { value: text, className: "sr" });
      document.body.append(area);
      area.select();
      var ok = document.execCommand("copy");
      area.remove();
      button.focus();
      done(ok);
    }
    if (navigator.clipboard && window.isSecureContext) {
      navigator.clipboard.writeText(text).then(function () { done(true); }, byHand);
    } else byHand();
  }

  function theme() {
    var button = document.querySelector("button.theme");
    var dark = matchMedia("(prefers-color-scheme: dark)");
    function current() { return document.documentElement.dataset.theme || (dark.matches ? "dark" : "light"); }
    function show() {
      button.setAttribute("aria-label", current() === "dark" ? "Switch to light" : "Switch to dark");
      button.title = button.getAttribute("aria-label");
      button.dataset.now = current();
    }
    button.hidden = false;
    button.addEventListener("click", function () {
      var next = current() === "dark" ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      try { localStorage.setItem("attest-theme", next); } catch (error) { /* storage is off: this page only */ }
      show();
    });
    dark.addEventListener("change", show);
    show();
  }

  function copyButtons() {
    document.querySelectorAll("pre.copy, pre.command").forEach(function (block) {
      var button = make("button", { type: "button", className: "quiet", textContent: "Copy" });
      button.addEventListener("click", function () { copy(block.textContent, button); });
      var box = make("div", { className: "copybox" });
      block.replaceWith(box);
      box.append(block, button);
    });
  }

  /** Say that a table is one: on narrow screens the style lays its rows out as cards, which hides that from readers. */
  function roles() {
    var names = { TABLE: "table", THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell" };
    document.querySelectorAll("table.claims, table.claims > * , table.claims > * > tr, table.claims > * > tr > *").forEach(function (part) {
      var role = part.tagName === "TH" ? part.scope === "col" ? "columnheader" : "rowheader" : names[part.tagName];
      if (role) part.setAttribute("role", role);
    });
  }

  /** Open what a link points into, such as a closed `details`. */
  function reveal() {
    var text = decodeURIComponent(location.hash.slice(1));
    var target = text && !text.includes("=") && document.getElementById(text);
    if (!target) return;
    for (var up = target; up; up = up.parentElement) if (up.tagName === "DETAILS") up.open = true;
    target.scrollIntoView();
  }

  /** A menu closes when the reader turns elsewhere, or with Escape. */
  function menus() {
    document.addEventListener("click", function (event) {
      document.querySelectorAll(".menu[open]").forEach(function (menu) { if (!menu.contains(event.target)) menu.open = false; });
    });
    document.addEventListener("keydown", function (event) {
      var menu = event.key === "Escape" && document.activeElement.closest(".menu[open]");
      if (!menu) return;
      menu.open = false;
      menu.querySelector("summary").focus();
    });
  }

  theme();
  menus();
  copyButtons();
  roles();
  window.addEventListener("hashchange", reveal);
  window.addEventListener("load", reveal);

  return { root: root, make: make, get: get, set: set, onState: onState, load: load, copy: copy };
})();
