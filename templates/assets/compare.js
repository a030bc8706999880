// Two runs side by side: paired differences over seeds with 95 % intervals, one row a cell. Data come as script files.
(function () {
  "use strict";
  var make = attest.make;
  var data = JSON.parse(document.getElementById("compare-data").textContent);
  var labels = Object.fromEntries(data.runs), found = {}, wanted = null;
  var a = document.getElementById("run-a"), b = document.getElementById("run-b"), out = document.getElementById("compared");
  document.getElementById("pick").hidden = false;

  var items = {};
  attest.run = function (id, cells, packed) { found[id] = cells; items[id] = packed; };

  function choose() { attest.set({ a: a.value, b: b.value }); show(); }
  a.addEventListener("change", choose);
  b.addEventListener("change", choose);
  document.getElementById("swap").addEventListener("click", function () {
    var old = a.value;
    a.value = b.value;
    b.value = old;
    choose();
  });
  attest.onState(function () {
    var x = attest.get("a"), y = attest.get("b");
    a.value = x in labels ? x : data.first[0];
    b.value = y in labels ? y : data.first.find(function (id) { return id !== a.value; }) || a.value;
    show();
  });

  function show() {
    var pair = [a.value, b.value];
    wanted = pair.join();
    attest.load("data/" + pair[0] + ".js", function () {
      attest.load("data/" + pair[1] + ".js", function () { if (wanted === pair.join()) draw(pair[0], pair[1]); });
    });
  }

  function draw(x, y) {
    var rows = data.cells.map(function (cell, k) { return row(cell, bySeed(found[x][k]), bySeed(found[y][k]), x, y); });
    var heads = ["Measurement", labels[x], labels[y], "A − B", "95 % interval", "Seeds", "In favour of", "Items for A : for B : even"];
    var head = make("tr", {}, heads.map(function (text, k) { return make("th", { scope: "col", className: k > 0 && k !== 6 ? "num" : "", textContent: text }); }));
    var caption = make("caption", { textContent: labels[x] + " (A) against " + labels[y] + " (B)" });
    var table = make("table", { id: "cells" }, [caption, make("thead", {}, [head]), make("tbody", {}, rows)]);
    var scroll = make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Differences of two runs" }, [table]);
    var box = make("div", { className: "tablebox" }, [scroll]);
    out.replaceChildren(box);
    attest.enhance(box);
  }

  /** The seeds that were measured, by their places. */
  function bySeed(values) {
    return Object.fromEntries(Object.entries(values || []).filter(function (pair) { return pair[1] !== null; }));
  }

  function row(cell, xs, ys, x, y) {
    var id = cell[0], better = cell[2], unit = cell[3] ? " " + cell[3] : "";
    var seeds = Object.keys(xs).filter(function (seed) { return seed in ys; });
    var d = seeds.map(function (seed) { return xs[seed] - ys[seed]; });
    var places = decimals(Object.values(xs).concat(Object.values(ys)));
    var head = make("th", { scope: "row", textContent: cell[1] + unit + ({ higher: " ↑", lower: " ↓" }[better] || "") });
    var items = [value(xs, x, id, places), value(ys, y, id, places)];
    if (!d.length) return make("tr", {}, [head].concat(items, [gap("no common seed"), gap("no common seed"), num("0", 0), gap("no common seed"), counted(id, better, x, y)]));
    var m = mean(d), half = d.length > 1 ? t(d.length - 1) * Math.sqrt(d.reduce(function (s, v) { return s + (v - m) * (v - m); }, 0) / (d.length - 1) / d.length) : null;
    var interval = half === null ? gap("one seed has no interval") : num(write(m - half, places, true) + " to " + write(m + half, places, true), m);
    return make("tr", {}, [head].concat(items, [num(write(m, places, true), m), interval, num(String(d.length), d.length), favour(m, half, better), counted(id, better, x, y)]));
  }

  /** On how many items A did better, B did better, and neither: by their scores, means over each run's seeds. */
  function counted(id, better, x, y) {
    if (better === "none") return gap("no direction");
    var xs = scores(items[x][id]), ys = scores(items[y][id]);
    if (!xs.length || xs.length !== ys.length) return gap(xs.length && ys.length ? "other items" : "no items kept");
    var won = 0, lost = 0, sign = better === "higher" ? 1 : -1;
    xs.forEach(function (value, k) {
      if (sign * (value - ys[k]) > 0) won += 1;
      else if (value !== ys[k]) lost += 1;
    });
    return num(won + " : " + lost + " : " + (xs.length - won - lost), (won - lost) / xs.length);
  }

  /** Two bytes a number, little end first, in base64. */
  function scores(text) {
    var bytes = atob(text || ""), out = [];
    for (var k = 0; k < bytes.length; k += 2) out.push(bytes.charCodeAt(k) + 256 * bytes.charCodeAt(k + 1));
    return out;
  }

  function favour(m, half, better) {
    if (half === null || better === "none" || Math.abs(m) <= half) return make("td", { className: "small", textContent: half === null ? "one seed cannot say" : better === "none" ? "no direction" : "not told apart" });
    return make("td", {}, [make("b", { textContent: (m > 0) === (better === "higher") ? "A" : "B" })]);
  }

  function value(values, run, id, places) {
    var all = Object.values(values);
    if (!all.length) return gap("not measured", run);
    return make("td", { className: "num", "data-v": mean(all) }, [make("a", { href: "runs/" + run + ".html#" + id, textContent: write(mean(all), places) })]);
  }

  function gap(why, run) {
    var text = "— " + why;
    return make("td", { className: "none", title: why }, [run ? make("a", { href: "runs/" + run + ".html#seeds", textContent: text }) : text]);
  }

  function num(text, value) { return make("td", { className: "num", textContent: text, "data-v": value }); }
  function mean(values) { return values.reduce(function (s, v) { return s + v; }, 0) / values.length; }
  function t(df) { return data.t[Math.min(df, data.t.length) - 1]; }

  function decimals(values) {
    var largest = Math.max.apply(null, values.map(Math.abs).concat([0]));
    return largest < 10 ? 3 : largest < 100 ? 2 : largest < 1000 ? 1 : 0;
  }

  function write(value, places, sign) {
    var vanishes = value !== 0 && Math.abs(value) < 0.5 * Math.pow(10, -places);
    var text = vanishes ? value.toExponential(1) : value.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places });
    return ((sign && value > 0 ? "+" : "") + text).replaceAll("-", "−");
  }
})();
