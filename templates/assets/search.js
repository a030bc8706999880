// Search over all pages: every word must occur; titles count more than text. The index is loaded when it is first needed.
(function () {
  "use strict";
  var box = document.querySelector(".search"), input = document.getElementById("search"), list = document.getElementById("found");
  var entries = null, active = -1;
  box.hidden = false;

  attest.index = function (rows) {
    entries = rows.map(function (row) {
      return { kind: row[0], title: row[1], path: row[2], text: row[3], head: row[1].toLowerCase(), all: (row[1] + " " + row[3] + " " + row[0]).toLowerCase() };
    });
  };

  function find(text) {
    var words = text.toLowerCase().split(/\s+/).filter(Boolean);
    return entries.map(function (entry) {
      if (!words.every(function (word) { return entry.all.includes(word); })) return null;
      var score = words.reduce(function (sum, word) {
        return sum + (entry.head.startsWith(word) ? 4 : entry.head.includes(word) ? 2 : 1);
      }, entry.kind === "claim" ? 0 : 1);
      return { entry: entry, score: score };
    }).filter(Boolean).sort(function (a, b) { return b.score - a.score; }).slice(0, 12);
  }

  function show() {
    if (!input.value.trim()) return close();
    attest.load("assets/index.js", function () {
      var hits = find(input.value);
      list.replaceChildren.apply(list, hits.length ? hits.map(option) : [attest.make("li", { role: "option", className: "small", textContent: "Nothing found", "aria-disabled": "true", "aria-selected": "false" })]);
      list.hidden = false;
      input.setAttribute("aria-expanded", "true");
      mark(-1);
    });
  }

  function option(hit, place) {
    var entry = hit.entry;
    var item = attest.make("li", { role: "option", id: "found-" + place, "aria-selected": "false" }, [
      attest.make("span", { className: "kind", textContent: entry.kind }), attest.make("span", { textContent: entry.title })]);
    item.dataset.path = entry.path;
    item.addEventListener("mousedown", function (event) { event.preventDefault(); go(item); });
    return item;
  }

  function go(item) { if (item && item.dataset.path) location.href = attest.root + item.dataset.path; close(); }

  function mark(place) {
    active = place;
    Array.from(list.children).forEach(function (item, k) { item.setAttribute("aria-selected", String(k === place)); });
    var item = list.children[place];
    if (item) { input.setAttribute("aria-activedescendant", item.id); item.scrollIntoView({ block: "nearest" }); }
    else input.removeAttribute("aria-activedescendant");
  }

  function close() {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
    active = -1;
  }

  input.addEventListener("input", show);
  input.addEventListener("focus", show);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", function (event) {
    var n = list.hidden ? 0 : list.children.length;
    if (event.key === "ArrowDown" && n) mark((active + 1) % n);
    else if (event.key === "ArrowUp" && n) mark((active + n - 1) % n);
    else if (event.key === "Enter" && n) go(list.children[Math.max(active, 0)]);
    else if (event.key === "Escape") { input.value = ""; close(); }
    else return;
    event.preventDefault();
  });
  document.addEventListener("keydown", function (event) {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    input.focus();
  });
})();
