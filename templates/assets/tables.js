// Tables: sort by a heading, filter rows, choose columns, copy as LaTeX, Markdown or CSV. State lies in the address.
(function () {
  "use strict";
  var make = attest.make;

  attest.enhance = function (box) { enhance(box, box.querySelector("table")); };
  document.querySelectorAll("[data-tools]").forEach(attest.enhance);

  function enhance(box, table) {
    var body = table.tBodies[0];
    var rows = Array.from(body.rows);
    if (rows.length === 0 || rows[0].cells.length !== table.tHead.rows[0].cells.length) return;
    var heads = Array.from(table.tHead.rows[0].cells);
    var order = rows.slice();
    var first = (table.dataset.hide || "").split(",").filter(Boolean).map(Number);
    var tools = make("div", { className: "tabletools" });
    var filter = null, count = null, style = make("style");

    heads.forEach(function (head, place) {
      var button = make("button", { type: "button", className: "sort" });
      button.append.apply(button, Array.from(head.childNodes));
      head.append(button);
      button.addEventListener("click", function () {
        var now = attest.get(table.id + ".sort"), up = String(place), down = "-" + place;
        var turns = highFirst(place) ? [down, up, null] : [up, down, null];  // the best first, then the other way, then as it was
        change("sort", turns[(turns.indexOf(now) + 1) % turns.length]);
      });
    });

    if (rows.length > 6) {
      filter = make("input", { type: "search", placeholder: "Filter rows", "aria-label": "Filter rows: " + table.caption.textContent });
      filter.addEventListener("input", function () { change("q", filter.value); });
      count = make("span", { className: "small", role: "status" });
      tools.append(filter, count);
    }
    var boxes = heads.length > 4 ? columns() : [];
    tools.append(copyMenu());
    box.prepend(tools);
    document.head.append(style);
    attest.onState(apply);

    function change(key, value) {
      var changes = {};
      changes[table.id + "." + key] = value;
      attest.set(changes);
      apply();
    }

    function numeric(place) { return heads[place].classList.contains("num"); }

    function highFirst(place) {
      var arrow = heads[place].querySelector(".arrow");
      return numeric(place) && !(arrow && arrow.textContent === "↓");
    }

    function columns() {
      var list = make("div", { className: "choices" });
      var inputs = heads.map(function (head, place) {
        if (place === 0) return null;
        var input = make("input", { type: "checkbox", checked: true });
        input.addEventListener("change", function () {
          var hidden = inputs.map(function (one, k) { return one && !one.checked ? k : -1; }).filter(function (k) { return k > 0; });
          var same = hidden.join() === first.join();
          change("hide", same ? null : hidden.join() || "none");
        });
        list.append(make("label", {}, [input, " " + label(head)]));
        return input;
      });
      tools.append(make("details", { className: "menu" }, [make("summary", { textContent: "Columns" }), list]));
      return inputs;
    }

    function copyMenu() {
      var list = make("div", { className: "choices" });
      [["LaTeX", latex], ["Markdown", markdown], ["CSV", csv]].forEach(function (kind) {
        var button = make("button", { type: "button", textContent: kind[0] });
        button.addEventListener("click", function () { attest.copy(kind[1](visible()), button); });
        list.append(button);
      });
      return make("details", { className: "menu" }, [make("summary", { textContent: "Copy" }), list]);
    }

    function apply() {
      var sort = attest.get(table.id + ".sort");
      var q = attest.get(table.id + ".q") || "";
      var hide = attest.get(table.id + ".hide");
      sortRows(sort);
      filterRows(q);
      hideColumns(hide === null ? first : hide === "none" ? [] : hide.split(",").map(Number));
    }

    function sortRows(sort) {
      var place = sort === null ? -1 : Math.abs(parseInt(sort, 10));
      var sign = sort !== null && sort.startsWith("-") ? -1 : 1;
      heads.forEach(function (head, k) {
        if (k === place) head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      });
      var sorted = rows.slice();
      if (heads[place]) sorted.sort(function (a, b) { return compare(a.cells[place], b.cells[place], sign, numeric(place)); });
      if (sorted.every(function (row, k) { return row === order[k]; })) return;
      order = sorted;
      body.append.apply(body, order);
    }

    function filterRows(q) {
      if (!filter) return;
      if (filter.value !== q) filter.value = q;
      var words = q.toLowerCase().split(/\s+/).filter(Boolean), shown = 0;
      rows.forEach(function (row) {
        var text = row.textContent.toLowerCase();
        row.hidden = !words.every(function (word) { return text.includes(word); });
        if (!row.hidden) shown += 1;
      });
      count.textContent = q ? shown + " of " + rows.length : "";
    }

    function hideColumns(hidden) {
      boxes.forEach(function (input, k) { if (input) input.checked = !hidden.includes(k); });
      var rules = hidden.map(function (k) { return "#" + CSS.escape(table.id) + " > * > tr > :nth-child(" + (k + 1) + ")"; });
      style.textContent = rules.length ? rules.join(",") + "{display:none}" : "";
    }

    function visible() {
      return [table.tHead.rows[0]].concat(order.filter(function (row) { return !row.hidden; })).map(function (row) {
        return Array.from(row.cells).filter(function (cell) { return getComputedStyle(cell).display !== "none"; });
      });
    }
  }

  /** Numbers as numbers, text by the reader's alphabet; what is missing comes last either way. */
  function compare(a, b, sign, numeric) {
    var x = key(a, numeric), y = key(b, numeric);
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (numeric ? x - y : x.localeCompare(y, undefined, { numeric: true }));
  }

  function key(cell, numeric) {
    if (cell.classList.contains("none")) return null;
    if (!numeric) return cell.textContent.trim();
    return cell.dataset.v === undefined ? null : parseFloat(number(cell));
  }

  /** The number behind a cell, to eight digits; a bare data-v says that its text is the number. */
  function number(cell) { return cell.dataset.v || String(parseFloat(label(cell))); }

  function label(cell) { return cell.textContent.replace(/\s+/g, " ").trim(); }

  function text(cell) {
    var why = cell.classList.contains("none") ? " (" + cell.title + ")" : "";
    return why ? "—" + why : label(cell);
  }

  function csv(rows) {
    return rows.map(function (cells) {
      return cells.map(function (cell) {
        var value = cell.classList.contains("none") ? "" : cell.dataset.v !== undefined ? number(cell) : label(cell);
        return /[",\n]/.test(value) ? '"' + value.replaceAll('"', '""') + '"' : value;
      }).join(",");
    }).join("\n") + "\n";
  }

  function markdown(rows) {
    function line(cells) { return "| " + cells.join(" | ") + " |"; }
    var lines = rows.map(function (cells) {
      return line(cells.map(function (cell) {
        var value = text(cell).replace(/[\\|*_`<>[\]]/g, "\\$&");
        return cell.querySelector("b") ? "**" + value + "**" : value;
      }));
    });
    lines.splice(1, 0, line(rows[0].map(function (cell) { return cell.classList.contains("num") ? "---:" : ":---"; })));
    return lines.join("\n") + "\n";
  }

  var TEX = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}",
    "|": "\\textbar{}", "±": "$\\pm$", "−": "$-$", "↑": "$\\uparrow$", "↓": "$\\downarrow$", "×": "$\\times$", "—": "---", "–": "--", "…": "\\dots{}" };

  function latex(rows) {
    var spec = rows[0].map(function (cell) { return cell.classList.contains("num") ? "r" : "l"; }).join("");
    var lines = rows.map(function (cells) {
      return cells.map(function (cell) {
        var value = text(cell).replace(/[\\~^<>|±−↑↓×—–…]|[{}&%$#_]/g, function (one) { return TEX[one] || "\\" + one; });
        return cell.querySelector("b") ? "\\textbf{" + value + "}" : value;
      }).join(" & ") + " \\\\";
    });
    lines.splice(1, 0, "\\midrule");
    return ["\\begin{tabular}{" + spec + "}", "\\toprule"].concat(lines, ["\\bottomrule", "\\end{tabular}"]).join("\n") + "\n";
  }
})();
