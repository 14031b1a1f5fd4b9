// Draws the charts from the numbers in #data with uPlot. Words and tables do not need it.
"use strict";
(() => {
  const runs = JSON.parse(document.getElementById("data").textContent);
  const plots = [];

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const color = (index) => css("--c" + (index % 6));

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
      ctx.setLineDash(line.source === "predicted" ? [7 * ratio, 5 * ratio] : []);
      ctx.beginPath();
      line.points.forEach(([x, y], i) => (i ? ctx.lineTo(...at(x, y)) : ctx.moveTo(...at(x, y))));
      ctx.stroke();
      ctx.setLineDash([]);
      if (kind === "sweeps") {
        for (const [x, y] of line.points) {
          const [px, py] = at(x, y);
          ctx.beginPath();
          ctx.arc(px, py, 3 * ratio, 0, 7);
          ctx.fillStyle = line.source === "predicted" ? css("--paper") : color(line.color);
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
          line.source === "predicted" ? (ctx.fillStyle = css("--paper")) : (ctx.fillStyle = color(line.color));
          ctx.fill();
          ctx.stroke();
          ctx.fillStyle = css("--muted");
          if (depth) ctx.fillText(String(depth), px + 6 * ratio, py + 13 * ratio);
        }
      }
    }
    ctx.restore();
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
    const legend = document.createElement("ul");
    legend.className = "legend";
    cell.append(title, canvas, readout, legend);
    box.append(cell);

    // uPlot scales by the columns it is given; the lines are drawn from their own points.
    const all = lines.flatMap((line) => line.points);
    const xs = [...new Set(all.map((p) => p[0]))].sort((a, b) => a - b);
    const low = Math.min(...all.map((p) => p[1]));
    const high = Math.max(...all.map((p) => (kind === "curves" ? p[3] : p[1])));
    const data = [xs, xs.map((_, i) => (i ? high : low)), xs.map(() => low)];
    const axis = (label, log, format, extra) => ({
      label, labelSize: 16, labelGap: 0, gap: 4, labelFont: "12px system-ui, sans-serif", font: "11px system-ui, sans-serif",
      stroke: () => css("--muted"), grid: { stroke: () => css("--line"), width: 1 },
      ticks: { stroke: () => css("--line"), width: 1 },
      values: (u, splits) => splits.map((v) => (v == null ? "" : format(v))),
      ...(log ? { splits: logSplits, filter: (u, splits) => splits } : {}), ...extra,
    });
    const invisible = { paths: () => null, points: { show: false } };
    const options = {
      width: 100, height: 300, legend: { show: false },
      cursor: { points: { show: false }, drag: { x: true, y: false } },
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
          const hit = left >= 0 ? nearest(u, lines, left, top) : null;
          readout.textContent = hit ? `${hit.line.label} (${hit.line.source}), ${shape.tip(hit.point)}` : "";
        }],
      },
    };
    const plot = new uPlot(options, data, canvas);
    plots.push({ plot, canvas });

    for (const line of lines) {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      const stroke = document.createElement("span");
      stroke.className = `stroke ${line.source} s${line.color % 6}`;
      button.append(stroke, `${line.label} (${line.source})`);
      button.addEventListener("click", () => {
        line.hidden = !line.hidden;
        button.setAttribute("aria-pressed", String(!line.hidden));
        plot.redraw(false);
      });
      item.append(button);
      legend.append(item);
    }
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
    for (const chart of charts) makeChart(section.querySelector(".charts"), chart, kind);
  }
  resize();
  new ResizeObserver(resize).observe(document.body);
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", redraw);
  }

  const filter = document.getElementById("filter");
  const rows = [...document.querySelectorAll("#table tbody tr")];
  const shown = document.getElementById("shown");
  const apply = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      count += row.hidden ? 0 : 1;
    }
    shown.textContent = `${count} of ${rows.length} figures`;
  };
  filter.addEventListener("input", apply);
  apply();
  document.documentElement.dataset.ready = String(plots.length);
})();
