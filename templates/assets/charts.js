// Charts: the drawn picture stands first; pointing at it loads Vega and puts the live chart of the same size in its place.
(function () {
  "use strict";
  var views = [], focus = null, config = {};

  attest.config = function (given) { config = given; };

  document.querySelectorAll("figure.chart").forEach(function (figure) {
    var plot = figure.querySelector(".plot"), started = false;
    function start() {
      if (started) return;
      started = true;
      attest.load("assets/config.js", function () {
        attest.load("assets/vendor/vega.js", function () { enliven(figure, plot); });
      });
    }
    plot.addEventListener("pointerenter", start, { once: true });
    plot.addEventListener("focusin", start, { once: true });
    plot.addEventListener("attest-live", start, { once: true });
    plot.tabIndex = 0;
    var drawn = plot.querySelector("svg").cloneNode(true);
    figure.querySelector(".take").append(tool("SVG", function () { svg(figure, drawn); }), " · ", tool("PNG", function (button) {
      start();
      png(figure, button);
    }), " · ", tool("Vega-Lite", function (button) {
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

  /** What Vega-Lite draws: the figure's own part and the look that all share. */
  function spec(figure) { return Object.assign(JSON.parse(figure.querySelector("script.spec").textContent), { config: config }); }

  function enliven(figure, plot) {
    var place = attest.make("div", { className: "live" });
    var still = plot.querySelector("svg");
    window.vegaEmbed(place, spec(figure), { actions: false, renderer: "svg", mode: "vega-lite", tooltip: { theme: "attest" } }).then(function (done) {
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

  function png(figure, button) {
    if (!figure.classList.contains("alive")) return void setTimeout(function () { png(figure, button); }, 60);
    window.vegaEmbed(document.createElement("div"), spec(figure), { actions: false }).then(function (done) {
      return done.view.background("white").toImageURL("png", 2);
    }).then(function (url) {
      attest.make("a", { href: url, download: figure.id + ".png" }).click();
    });
  }
})();
