// Draws the charts from the numbers in #data with uPlot. Words and tables do not need it.
"use strict";
(() => {
  const runs = JSON.parse(document.getElementById("data").textContent);
  const plots = [];

  // A colour of the style sheet, of the theme that is shown.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  const css = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const color = (index) => css("--h" + (index % 8));
  const DASHES = { measured: [], emulated: [7, 3], predicted: [1.5, 3.5] };

  const short = (value) => {
    const abs = Math.abs(value);
    if (abs >= 1e6) return +(value / 1e6).toPrecision(3) + "M";
    if (abs >= 1e3) return +(value / 1e3).toPrecision(3) + "k";
    return String(+value.toPrecision(3));
  };
  const micros = (us) => {
    if (us >= 1e6) return +(us / 1e6).toPrecision(3) + " s";
    if (us >= 1e3) return +(us / 1e3).toPrecision(3) + " ms";
    if (us >= 1) return +us.toPrecision(3) + " \u00b5s";
    return +(us * 1e3).toPrecision(3) + " ns";
  };
  // 1 / (1 - p) as a percentile: 100 is 99 %.
  const percentile = (oneIn) => {
    const share = 100 * (1 - 1 / oneIn);
    return +share.toFixed(Math.max(0, Math.round(Math.log10(oneIn)) - 1)) + " %";
  };

  // Sections with more charts than these are folded.
  const SHOWN_MAX = 4;
  // Kinds whose horizontal axis is time: their cursors move together.
  const TIMED = new Set(["series", "inside", "phases", "races"]);
  const KINDS = {
    curves: { x: "IOPS", y: "latency", xlog: true, ylog: true, fx: short, fy: micros,
      tip: (p) => `${p[2] ? `depth ${p[2]}: ` : ""}${short(p[0])} IOPS, median ${micros(p[1])}, p99 ${micros(p[3])}` },
    spectra: { x: "percentile", y: "latency", xlog: true, ylog: true, fx: percentile, fy: micros,
      tip: (p) => `${percentile(p[0])}: ${micros(p[1])}` },
    sweeps: { fx: (x) => String(+x.toPrecision(4)), fy: short, tip: null },
    series: { x: "seconds", y: "operations/s", xlog: false, ylog: false, fx: short, fy: short,
      tip: (p) => `${short(p[0])} s: ${short(p[1])}/s` },
    inside: { x: "seconds", y: "", xlog: false, ylog: false, fx: short, fy: short,
      tip: (p) => `${short(p[0])} s: ${short(p[1])}` },
    phases: { x: "seconds", y: "ms", xlog: false, ylog: false, fx: short, fy: short,
      tip: (p) => `${short(p[0])} s: ${short(p[1])} ms` },
    races: { x: "seconds", y: "queries/s", xlog: false, ylog: false, fx: short, fy: short,
      tip: (p) => `${short(p[0])} s: ${short(p[1])}/s` },
  };

  // A sweep brings its own axes.
  const sweepShape = (chart) => {
    const fy = chart.y === "latency" ? micros : (y) => `${short(y)}`;
    return { x: chart.x, y: chart.y, xlog: chart.xlog, ylog: chart.ylog, fx: KINDS.sweeps.fx, fy,
      tip: (p) => `${chart.x} ${KINDS.sweeps.fx(p[0])}: ${fy(p[1])}${chart.y === "latency" ? "" : " " + chart.y}` };
  };

  // Decades, and 2 and 5 between them where the axis spans little.
  const logSplits = (u, axis, min, max) => {
    if (!(min > 0) || !Number.isFinite(max)) return [];
    const decades = Math.log10(max / min);
    const steps = decades < 0.7 ? [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8] : decades < 2.2 ? [1, 2, 5] : [1];
    const splits = [];
    for (let power = Math.floor(Math.log10(min)); power <= Math.log10(max); power++) {
      for (const step of steps) {
        const value = step * 10 ** power;
        if (value >= min && value <= max) splits.push(value);
      }
    }
    return splits;
  };

  // Bounds of a logarithmic axis with a little air, so that marks are not cut.
  const logRange = (u, min, max) => [min / 1.5, max * 1.5];
  const linearRange = (u, min, max) => [0, max * 1.08 || 1];
  const paddedRange = (u, min, max) => [min - (max - min) * 0.03, max + (max - min) * 0.03];

  // Draws every visible line in the order of its points (curves may turn back).
  function drawLines(u, lines, kind) {
    const ctx = u.ctx;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    ctx.lineWidth = 2 * ratio;
    for (const line of lines) {
      if (line.hidden) continue;
      ctx.strokeStyle = ctx.fillStyle = color(line.color);
      const at = (x, y) => [u.valToPos(x, "x", true), u.valToPos(y, "y", true)];
      if (kind === "curves") {
        ctx.setLineDash([]);
        ctx.globalAlpha = 0.35;
        for (const [x, y, , tail] of line.points) {
          ctx.beginPath();
          ctx.moveTo(...at(x, y));
          ctx.lineTo(...at(x, tail));
          ctx.stroke();
        }
        ctx.globalAlpha = 1;
      }
      ctx.setLineDash((DASHES[line.source] || []).map((part) => part * ratio));
      ctx.beginPath();
      line.points.forEach(([x, y], i) => (i ? ctx.lineTo(...at(x, y)) : ctx.moveTo(...at(x, y))));
      ctx.stroke();
      ctx.setLineDash([]);
      if (kind === "sweeps") {
        for (const [x, y] of line.points) {
          const [px, py] = at(x, y);
          ctx.beginPath();
          ctx.arc(px, py, 3 * ratio, 0, 7);
          ctx.fillStyle = line.source === "measured" ? color(line.color) : css("--paper");
          ctx.fill();
          ctx.stroke();
        }
      }
      if (kind === "curves") {
        ctx.font = `${11 * ratio}px system-ui, sans-serif`;
        for (const [x, y, depth] of line.points) {
          const [px, py] = at(x, y);
          ctx.beginPath();
          ctx.arc(px, py, 3.5 * ratio, 0, 7);
          ctx.fillStyle = line.source === "measured" ? color(line.color) : css("--paper");
          ctx.fill();
          ctx.stroke();
          ctx.fillStyle = css("--muted");
          if (depth) ctx.fillText(String(depth), px + 6 * ratio, py + 13 * ratio);
        }
      }
    }
    ctx.restore();
    drawLabels(u, lines);
  }

  // Names at the ends of the lines, pushed apart where they would lie on each other.
  function drawLabels(u, lines) {
    const ctx = u.ctx;
    const ratio = devicePixelRatio || 1;
    const step = 13 * ratio;
    const bottom = u.bbox.top + u.bbox.height;
    const ends = lines.map((line) => {
      const end = line.points.reduce((a, b) => (b[0] >= a[0] ? b : a));
      const y = u.valToPos(end[1], "y", true);
      return { line, y: Math.min(bottom, Math.max(u.bbox.top, y)) };
    }).sort((a, b) => a.y - b.y);
    let last = -Infinity;
    for (const end of ends) last = end.y = Math.max(end.y, last + step);
    let most = bottom;
    for (const end of ends.reverse()) most = (end.y = Math.min(end.y, most)) - step;
    ctx.save();
    ctx.font = `600 ${11 * ratio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    const left = u.bbox.left + u.bbox.width + 6 * ratio;
    const room = ctx.canvas.width - left;
    for (const { line, y } of ends) {
      let text = line.label;
      while (text.length > 4 && ctx.measureText(text).width > room) text = text.slice(0, -2).trimEnd() + "\u2026";
      ctx.fillStyle = color(line.color);
      ctx.fillText(text, left, y);
    }
    ctx.restore();
  }

  // Of each line the point that lies nearest along the horizontal axis.
  function atCursor(u, lines, left) {
    return lines.map((line) => {
      let best = null;
      for (const point of line.points) {
        const distance = Math.abs(u.valToPos(point[0], "x") - left);
        if (!best || distance < best.distance) best = { line, point, distance };
      }
      return best;
    });
  }

  function nearest(u, lines, left, top) {
    let best = null;
    for (const line of lines) {
      if (line.hidden) continue;
      for (const point of line.points) {
        const dx = u.valToPos(point[0], "x") - left;
        const dy = u.valToPos(point[1], "y") - top;
        const distance = dx * dx + dy * dy;
        if (!best || distance < best.distance) best = { line, point, distance };
      }
    }
    return best;
  }

  function makeChart(box, chart, kind) {
    const shape = kind === "sweeps" ? sweepShape(chart) : KINDS[kind];
    const lines = chart.lines.filter((line) => line.points.length);
    if (!lines.length) return;
    const cell = document.createElement("div");
    cell.className = "chart";
    const title = document.createElement("h3");
    title.textContent = chart.title;
    const canvas = document.createElement("div");
    const readout = document.createElement("p");
    readout.className = "readout";
    const tools = document.createElement("div");
    tools.className = "chart-tools";
    cell.append(title, canvas, readout, tools);
    box.append(cell);

    // uPlot scales by the columns it is given; the lines are drawn from their own points.
    const all = lines.flatMap((line) => line.points);
    const xs = [...new Set(all.map((p) => p[0]))].sort((a, b) => a - b);
    const low = Math.min(...all.map((p) => p[1]));
    const high = Math.max(...all.map((p) => (kind === "curves" ? p[3] : p[1])));
    const data = [xs, xs.map((_, i) => (i ? high : low)), xs.map(() => low)];
    const axis = (label, log, format, extra) => ({
      label, labelSize: 16, labelGap: 0, gap: 4, labelFont: "12px system-ui, sans-serif", font: "11px system-ui, sans-serif",
      stroke: () => css("--muted"), grid: { stroke: () => css("--hair"), width: 1 },
      ticks: { stroke: () => css("--hair"), width: 1 },
      values: (u, splits) => splits.map((v) => (v == null ? "" : format(v))),
      ...(log ? { splits: logSplits, filter: (u, splits) => splits } : {}), ...extra,
    });
    const invisible = { paths: () => null, points: { show: false } };
    const options = {
      width: 100, height: 300, legend: { show: false }, padding: [8, innerWidth < 640 ? 92 : 150, 0, 0],
      cursor: { points: { show: false }, drag: { x: true, y: false }, ...(TIMED.has(kind) ? { sync: { key: "time" } } : {}) },
      scales: {
        x: { time: false, distr: shape.xlog ? 3 : 1, range: shape.xlog ? logRange : kind === "sweeps" ? paddedRange : undefined },
        y: { distr: shape.ylog ? 3 : 1, range: shape.ylog ? logRange : linearRange },
      },
      axes: [axis(shape.x, shape.xlog, shape.fx, { size: 30 }), axis(shape.y, shape.ylog, shape.fy, { size: 64 })],
      series: [{}, invisible, invisible],
      hooks: {
        draw: [(u) => drawLines(u, lines, kind)],
        setCursor: [(u) => {
          const { left, top } = u.cursor;
          if (left < 0) return void (readout.textContent = "");
          const hits = TIMED.has(kind) ? atCursor(u, lines, left) : [nearest(u, lines, left, top)];
          const one = (hit) => `${hit.line.label} (${hit.line.source}) ${shape.tip(hit.point)}`;
          readout.textContent = hits.filter(Boolean).map(one).join("; ");
        }],
      },
    };
    const plot = new uPlot(options, data, canvas);
    plots.push({ plot, canvas });

    const rowsOf = () => [["line", "source", "x", "y"], ...lines.flatMap((line) => line.points.map((p) => [line.label, line.source, p[0], p[1]]))];
    button(tools, "CSV", () => copy(asCsv(rowsOf()), `${chart.title}.csv`, "text/csv"));
    button(tools, "PNG", () => canvas.querySelector("canvas").toBlob((blob) => save(blob, `${chart.title}.png`)));
  }

  function button(box, words, act) {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = words;
    made.addEventListener("click", act);
    box.append(made);
    return made;
  }

  const asCsv = (table) => table.map((row) => row.map((cell) => {
    // A spreadsheet must not take a name for a formula.
    const plain = String(cell);
    const text = /^[=+@\t\r-]/.test(plain) && !Number.isFinite(Number(plain)) ? `'${plain}` : plain;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }).join(",")).join("\n") + "\n";

  function save(blob, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name.replace(/[^\w. -]+/g, "_");
    link.click();
    URL.revokeObjectURL(link.href);
  }

  // To the clipboard, or into a file where a browser lends none.
  function copy(text, name, type) {
    const done = () => { document.documentElement.dataset.copied = name; };
    const file = () => { save(new Blob([text], { type }), name); done(); };
    navigator.clipboard ? navigator.clipboard.writeText(text).then(done, file) : file();
  }

  function resize() {
    for (const { plot, canvas } of plots) {
      const width = Math.max(240, Math.floor(canvas.clientWidth));
      const height = Math.max(220, Math.min(340, Math.round(width * 0.6)));
      if (width !== plot.width || height !== plot.height) plot.setSize({ width, height });
    }
  }

  const redraw = () => plots.forEach(({ plot }) => plot.redraw(false, true));

  for (const section of document.querySelectorAll("section[data-kind]")) {
    const kind = section.dataset.kind;
    const charts = runs.flatMap((run) => run[kind]);
    if (!charts.length) continue;
    section.hidden = false;
    const box = section.querySelector(".charts");
    if (charts.length > SHOWN_MAX && kind !== "curves" && kind !== "races") {
      // What is long is folded; its charts take their width when it is opened.
      const fold = document.createElement("details");
      const words = document.createElement("summary");
      words.textContent = `${charts.length} charts`;
      box.replaceWith(fold);
      fold.append(words, box);
      fold.addEventListener("toggle", resize);
    }
    for (const chart of charts) makeChart(box, chart, kind);
  }
  resize();
  new ResizeObserver(resize).observe(document.body);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", redraw);
  }

  // Pictures that are drawn already: each can be taken along as a file.
  for (const figure of document.querySelectorAll("main figure")) {
    const picture = figure.querySelector("svg.parts, svg.panel");
    if (!picture) continue;
    const tools = document.createElement("div");
    tools.className = "chart-tools";
    figure.append(tools);
    button(tools, "SVG", () => {
      const made = picture.cloneNode(true);
      made.setAttribute("width", picture.clientWidth);
      const originals = [picture, ...picture.querySelectorAll("*")];
      [made, ...made.querySelectorAll("*")].forEach((node, i) => {
        const style = getComputedStyle(originals[i]);
        for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "font-family"]) {
          node.setAttribute(name, style.getPropertyValue(name));
        }
      });
      save(new Blob([new XMLSerializer().serializeToString(made)], { type: "image/svg+xml" }), "crosspoint.svg");
    });
  }

  // Colours: the system's, or one's own.
  const themes = [...document.querySelectorAll("[data-theme-choice]")];
  for (const choice of themes) {
    choice.addEventListener("click", () => {
      const theme = choice.dataset.themeChoice;
      theme ? (document.documentElement.dataset.theme = theme) : delete document.documentElement.dataset.theme;
      themes.forEach((one) => one.setAttribute("aria-pressed", String(one === choice)));
      redraw();
    });
  }

  // Sorts `rows` in their bodies; the same heading again turns the order round.
  function sortable(heading, bodies, key, descending) {
    const cell = heading.closest("th");
    heading.addEventListener("click", () => {
      const before = cell.getAttribute("aria-sort");
      const down = before ? before === "ascending" : descending;
      cell.closest("tr").querySelectorAll("[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      for (const body of bodies) {
        const rows = [...body.rows].filter((row) => !row.classList.contains("sub"));
        const sorted = rows.map((row) => [key(row), row]).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
        if (down) sorted.reverse();
        sorted.forEach(([, row]) => body.append(row));
      }
    });
  }
  for (const table of document.querySelectorAll("table.dec")) {
    for (const heading of table.querySelectorAll("[data-sort]")) {
      const place = heading.dataset.sort;
      const key = place === "text" ? (row) => row.cells[0].textContent : (row) => Number(row.dataset.keys.split(" ")[place]);
      sortable(heading, table.tBodies, key, place === "0" || place === "1");
    }
  }
  const table = document.getElementById("table");
  // Most figures are made when they are looked for: with their cells they would be most of the page.
  const folded = document.getElementById("folded");
  let unfold = () => {
    unfold = () => {};
    if (!folded) return;
    document.getElementById("all-figures").hidden = true;
    const { words, rows } = JSON.parse(folded.textContent);
    const made = rows.map((cells) => {
      const row = document.createElement("tr");
      cells.forEach((cell, column) => {
        const text = typeof cell === "number" && column !== 9 ? words[cell] : String(cell);
        const data = row.insertCell();
        data.className = { 4: "point", 6: "number", 8: "interval", 9: "number" }[column] || "";
        if (column === 0) {
          const [source, partial] = text.split(" ");
          const mark = document.createElement("i");
          mark.className = "src " + source;
          mark.textContent = source;
          data.append(mark, partial ? " " + partial : "");
        } else {
          data.textContent = text;
        }
      });
      return row;
    });
    table.tBodies[0].replaceChildren(...made);
  };
  if (folded) document.getElementById("all-figures").addEventListener("click", () => { unfold(); read(); apply(); });
  for (const heading of table.querySelectorAll("[data-column]")) {
    const column = Number(heading.dataset.column);
    const key = (row) => {
      const text = row.cells[column].textContent.trim();
      const number = Number(text.replace(/^\u2265\s*/, ""));
      return text !== "" && Number.isFinite(number) ? number : text.toLowerCase();
    };
    heading.addEventListener("click", () => { unfold(); read(); apply(); });
    sortable(heading, table.tBodies, key, false);
  }

  // One cursor for both pictures of a strip.
  for (const box of document.querySelectorAll(".strip-box")) {
    const columns = JSON.parse(box.dataset.columns);
    const pictures = [...box.querySelectorAll("svg.strip")];
    const readout = box.parentElement.querySelector(".readout");
    const lines = pictures.map((picture) => {
      const line = document.createElementNS(picture.namespaceURI, "line");
      line.setAttribute("class", "cursor");
      line.setAttribute("y2", "100%");
      line.setAttribute("visibility", "hidden");
      picture.append(line);
      return line;
    });
    let at = -1;
    const show = (place) => {
      at = Math.max(0, Math.min(columns.length - 1, place));
      const [second, rate, p50, p99] = columns[at];
      const x = `${((at + 0.5) / columns.length) * 100}%`;
      lines.forEach((line) => {
        line.setAttribute("x1", x);
        line.setAttribute("x2", x);
        line.setAttribute("visibility", "visible");
      });
      readout.textContent = `${second.toFixed(2)} s: ${short(rate)}/s, median ${micros(p50)}, p99 ${micros(p99)}`;
    };
    box.addEventListener("pointermove", (event) => {
      const area = pictures[0].getBoundingClientRect();
      show(Math.floor(((event.clientX - area.left) / area.width) * columns.length));
    });
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -columns.length, End: columns.length }[event.key];
      if (!step) return;
      event.preventDefault();
      show(at < 0 ? 0 : at + step);
    });
  }

  // The filter of the figures stands in the address, so that what one sees can be handed on.
  const filter = document.getElementById("filter");
  const shown = document.getElementById("shown");
  let rows, texts;
  const read = () => {
    rows = [...table.tBodies[0].rows];
    texts = rows.map((row) => row.textContent.toLowerCase());
  };
  read();
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => texts[i].includes(word));
      count += row.hidden ? 0 : 1;
    });
    shown.textContent = `${count} of ${table.dataset.all} figures`;
  };
  filter.addEventListener("input", () => {
    unfold();
    read();
    apply();
    const words = filter.value ? `#figures?${encodeURIComponent(filter.value)}` : "#figures";
    history.replaceState(null, "", words);
  });
  const [, wanted] = location.hash.split("?");
  if (wanted) {
    try {
      filter.value = decodeURIComponent(wanted);
    } catch {
      filter.value = wanted;
    }
    unfold();
    read();
    document.getElementById("figures").scrollIntoView();
  }
  apply();
  document.getElementById("csv").addEventListener("click", () => {
    unfold();
    read();
    apply();
    const all = [table.tHead.rows[0], ...table.tBodies[0].rows].filter((row) => !row.hidden);
    copy(asCsv(all.map((row) => [...row.cells].map((cell) => cell.textContent.trim()))), "figures.csv", "text/csv");
  });
  document.documentElement.dataset.ready = String(plots.length);
})();
