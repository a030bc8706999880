// Charts: the drawn picture stands first; pointing at it loads Vega and puts the live chart of the same size in its place.
(function () {
  "use strict";
  var views = [], focus = null, config = {}, kinds = {}, styles = {};

  /** The look of all charts, what those of a kind share, and each mechanism's colour, shape and dash. */
  attest.config = function (look, shared, marks) { config = look; kinds = shared; styles = marks; };

  /** A script in gzip and base64, which works from disk, where nothing can be fetched. */
  var unpacked = null;
  attest.packed = function (text) {
    unpacked = Promise.resolve().then(function () {
      var bytes = Uint8Array.from(atob(text), function (letter) { return letter.charCodeAt(0); });
      return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    }).then(function (code) {
      document.head.append(attest.make("script", { textContent: code }));
    });
  };

  /** Vega and what charts share, loaded; rejected where the browser cannot unpack it. */
  function vega() {
    return new Promise(function (resolve, reject) {
      if (!window.DecompressionStream) return reject(new Error("no DecompressionStream"));
      attest.load("assets/config.js", function () {
        attest.load("assets/vendor/vega.js", function () { unpacked.then(resolve, reject); });
      });
    });
  }

  document.querySelectorAll("figure.chart").forEach(function (figure) {
    var plot = figure.querySelector(".plot"), live = null;
    var picture = tool("PNG", function () { start().then(function () { png(figure); }, refuse); });
    function refuse() {
      picture.disabled = true;
      picture.title = "This browser cannot unpack Vega, which draws the PNG; the SVG needs no unpacking";
    }
    function start() {
      if (!live) {
        live = vega().then(function () { return enliven(figure, plot); });
        live.catch(refuse);
      }
      return live;
    }
    if (!window.DecompressionStream) refuse();
    plot.addEventListener("pointerenter", start, { once: true });
    plot.addEventListener("focusin", start, { once: true });
    plot.addEventListener("attest-live", start, { once: true });
    plot.tabIndex = 0;
    var drawn = plot.querySelector("svg").cloneNode(true);
    figure.querySelector(".take").append(tool("SVG", function () { svg(figure, drawn); }), " · ", picture, " · ", tool("Vega-Lite", function (button) {
      attest.load("assets/config.js", function () { attest.copy(JSON.stringify(spec(figure)), button); });
    }));
  });

  document.querySelectorAll(".key [data-run]").forEach(function (entry) {
    function point(name) { return function () { bringForward(name); }; }
    entry.addEventListener("pointerenter", point(entry.dataset.run));
    entry.addEventListener("focusin", point(entry.dataset.run));
    entry.addEventListener("pointerleave", point(null));
    entry.addEventListener("focusout", point(null));
  });

  function tool(label, act) {
    var button = attest.make("button", { type: "button", className: "quiet", textContent: label });
    button.addEventListener("click", function () { act(button); });
    return button;
  }

  /** What Vega-Lite draws: what all charts of its kind share, the figure's own part, and the look of all. */
  function spec(figure) {
    var page = JSON.parse(figure.querySelector("script.spec").textContent), last = [];
    var whole = merged(JSON.parse(JSON.stringify(kinds[page.kind])), page.own);
    ["color", "shape", "strokeDash"].forEach(function (channel, k) {
      whole.encoding[channel].scale = { domain: page.names, range: page.names.map(function (name) { return styles[name][k]; }) };
    });
    whole.data = { values: page.rows.split("\n").filter(Boolean).map(function (line) {
      last = line.split(",").map(function (field, k) { return field || last[k]; });
      return { run: page.names[last[0]], seed: +last[1], x: +last[2], y: +last[3] };
    }) };
    return Object.assign(whole, { config: config });
  }

  /** `own` put over `base`, part by part; null takes a part away. */
  function merged(base, own) {
    if (!own || typeof own !== "object" || Array.isArray(own) || !base || typeof base !== "object") return own;
    Object.entries(own).forEach(function (part) {
      if (part[1] === null) delete base[part[0]];
      else base[part[0]] = merged(base[part[0]], part[1]);
    });
    return base;
  }

  function enliven(figure, plot) {
    var place = attest.make("div", { className: "live" });
    var still = plot.querySelector("svg");
    return window.vegaEmbed(place, spec(figure), { actions: false, renderer: "svg", mode: "vega-lite", tooltip: { theme: "attest" } }).then(function (done) {
      var svg = place.querySelector("svg");
      svg.querySelectorAll("[role], [aria-roledescription]").forEach(function (mark) {
        ["role", "aria-roledescription", "aria-label", "aria-hidden"].forEach(function (name) { mark.removeAttribute(name); });
      });
      ["role", "aria-labelledby"].forEach(function (name) { svg.setAttribute(name, still.getAttribute(name)); });
      ["width", "height", "aria-roledescription", "aria-label"].forEach(function (name) { svg.removeAttribute(name); });
      still.replaceWith(place);
      figure.classList.add("alive");
      views.push(done.view);
      done.view.addEventListener("mouseover", function (event, item) { if (item && item.datum && item.datum.run) bringForward(item.datum.run); });
      done.view.addEventListener("mouseout", function () { bringForward(null); });
      if (focus !== null) done.view.signal("focus", focus).runAsync();
    });
  }

  function bringForward(name) {
    if (name !== null && views.length === 0) document.querySelectorAll("figure.chart .plot").forEach(function (plot) {
      plot.dispatchEvent(new Event("attest-live"));
    });
    if (name === focus) return;
    focus = name;
    views.forEach(function (view) { view.signal("focus", name).runAsync(); });
  }

  /** The picture as drawn beforehand, as a file that stands by itself: on white, with its title and its text. */
  function svg(figure, drawn) {
    var space = "http://www.w3.org/2000/svg", copy = drawn.cloneNode(true);
    copy.removeAttribute("aria-labelledby");
    copy.setAttribute("xmlns", space);
    [["rect", ""], ["desc", figure.querySelector(".plot + .sr").textContent], ["title", figure.querySelector("figcaption").textContent]].forEach(function (part) {
      var element = document.createElementNS(space, part[0]);
      element.textContent = part[1];
      copy.prepend(element);
    });
    Object.entries({ width: "100%", height: "100%", fill: "white" }).forEach(function (given) { copy.querySelector("rect").setAttribute(given[0], given[1]); });
    var url = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" }));
    attest.make("a", { href: url, download: figure.id + ".svg" }).click();
    setTimeout(function () { URL.revokeObjectURL(url); }, 60000);
  }

  function png(figure) {
    window.vegaEmbed(document.createElement("div"), spec(figure), { actions: false }).then(function (done) {
      return done.view.background("white").toImageURL("png", 2);
    }).then(function (url) {
      attest.make("a", { href: url, download: figure.id + ".png" }).click();
    });
  }
})();
