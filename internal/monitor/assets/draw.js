// Drawing and words: everything here is pure except that it touches the elements it is given.

// clock knows the server's time: pages must not trust the viewer's clock to say how old something is.
export const clock = {
  offset: 0,
  set(now) { this.offset = Date.parse(now) - Date.now(); },
  now() { return Date.now() + this.offset; },
};

export function el(tag, attrs = {}, ...children) {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) {
    if (v === undefined || v === false) continue;
    if (k === "class") e.className = v; else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...children.filter((c) => c !== undefined && c !== null));
  return e;
}

// text changes a node only when it differs: an update that changes nothing must cost nothing.
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

export function klass(node, value) {
  if (node.className !== value) node.className = value;
}

// count is a number with thin groups: 20 000.
export function count(n) {
  return String(n ?? 0).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

// span is a duration in words: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min, 3 d 4 h.
export function span(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 0) ms = 0;
  const s = ms / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  if (s < 86400) return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
  return Math.floor(s / 86400) + " d " + Math.floor((s % 86400) / 3600) + " h";
}

// delay is a short duration: 850 µs, 5.2 ms, 1.3 s, 4 min.
export function delay(ms) {
  if (ms === undefined || ms === null || !Number.isFinite(ms)) return "–";
  if (ms < 1) return "<1 ms";
  if (ms < 10) return ms.toFixed(1) + " ms";
  if (ms < 1000) return Math.round(ms) + " ms";
  return span(ms);
}

export const ago = (at) => (at ? span(clock.now() - Date.parse(at)) : "–");

const pad = (n) => String(n).padStart(2, "0");

// instant is hour with milliseconds.
export function instant(at) {
  return at ? hour(at) + "." + String(new Date(at).getMilliseconds()).padStart(3, "0") : "–";
}

// hour is the time of day, with the date when it is another day.
export function hour(at) {
  if (!at) return "–";
  const d = new Date(at), today = new Date(clock.now());
  const time = `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
  if (d.toDateString() === today.toDateString()) return time;
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${time}`;
}

export const words = {
  fresh: "fresh", silent: "silent", connected_silent: "connected but silent", never_seen: "never seen",
  unknown: "unknown", clock_suspect: "clock suspect", gaps: "with gaps", all: "all",
};

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// palette reads the colours once a theme; heat mixes them by how much of its time a device has used.
let palette = null;
export function theme() {
  palette = null;
}
function colours() {
  if (!palette) {
    palette = {};
    for (const n of ["fresh", "silent", "connected", "never", "unknown", "clock", "bg"]) palette[n] = css("--" + n);
  }
  return palette;
}

// used is how much of the time it may be quiet a device has used, as of what the screen has seen: below 1 is fresh.
export function used(cell, asOf) {
  const due = Date.parse(cell.due_at), live = Date.parse(cell.live_at);
  return (asOf - live) / Math.max(1, due - live);
}

function cellColour(c, cell, asOf, now) {
  if (!cell.due_at) return [c.never, 1];
  const due = Date.parse(cell.due_at);
  if (due > asOf && due <= now) return [c.unknown, 1];
  const u = used(cell, asOf);
  if (u < 1) return [c.fresh, 1 - 0.55 * Math.max(0, u)];
  return u < 8 ? [c.silent, 0.55 + 0.45 * Math.min(1, Math.log2(u) / 3)] : [c.connected, Math.min(1, 0.7 + Math.log2(u / 8) / 20)];
}

// strip draws one bar a cell: most overdue at the left. Colour and strength say how much of its time a device has used.
export function strip(canvas, cells, asOfText, nowText) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio)), height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const g = canvas.getContext("2d"), c = colours();
  const asOf = asOfText ? Date.parse(asOfText) : 0, now = Date.parse(nowText);
  g.clearRect(0, 0, width, height);
  const n = cells.length;
  for (let i = 0; i < n; i++) {
    const [colour, strength] = cellColour(c, cells[i], asOf, now);
    g.globalAlpha = strength;
    g.fillStyle = colour;
    const x = Math.floor((i * width) / n);
    g.fillRect(x, 0, Math.max(1, Math.floor(((i + 1) * width) / n) - x - (width / n > 5 ? 1 : 0)), height);
  }
  g.globalAlpha = 1;
}

const NS = "http://www.w3.org/2000/svg";
function svg(tag, attrs, content) {
  const e = document.createElementNS(NS, tag);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  if (content !== undefined) e.textContent = content;
  return e;
}

const H = 210, LEFT = 52, RIGHT = 8, TOP = 10, BOTTOM = 24;

// bands draws p50 as a line and p95, p99 as bands over the last hour, on a logarithmic scale. Minutes without an event
// are left out, not joined over.
export function bands(box, minutes, stage) {
  const points = minutes.map((m) => m.delays?.find((d) => d.stage === stage));
  const seen = points.filter(Boolean);
  box.replaceChildren();
  if (seen.length === 0) {
    box.append(el("p", { class: "quiet" }, "No event was measured in the last hour."));
    return;
  }
  const W = Math.max(280, box.clientWidth); // drawn at its size, so that its words are as large as all others
  const low = Math.floor(Math.log10(Math.max(0.5, Math.min(...seen.map((d) => d.p50_ms)))));
  const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(1, ...seen.map((d) => d.p99_ms)))));
  const x = (i) => LEFT + ((i + 0.5) * (W - LEFT - RIGHT)) / minutes.length;
  const y = (ms) => H - BOTTOM - ((Math.log10(Math.max(ms, 10 ** low)) - low) / (high - low)) * (H - TOP - BOTTOM);
  const newest = seen[seen.length - 1];
  const root = svg("svg", { class: "bands", viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label":
    `Delay over the last hour; newest minute: half within ${delay(newest.p50_ms)}, 95 % within ${delay(newest.p95_ms)}, 99 % within ${delay(newest.p99_ms)}` });
  for (let e = low; e <= high; e++) {
    root.append(svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y(10 ** e), y2: y(10 ** e) }));
    root.append(svg("text", { x: LEFT - 6, y: y(10 ** e) + 4, "text-anchor": "end" }, delay(10 ** e)));
  }
  for (const i of W < 420 ? [0, 30] : [0, 15, 30, 45]) {
    if (minutes[i]) root.append(svg("text", { x: x(i), y: H - 6 }, hour(minutes[i].at).slice(-8, -3)));
  }
  const half = (W - LEFT - RIGHT) / minutes.length / 2;
  for (const run of runs(points)) {
    const area = (k) => "M" + run.map((i) => `${x(i) - half},${y(points[i][k])} ${x(i) + half},${y(points[i][k])}`).join(" L") +
      ` L${x(run[run.length - 1]) + half},${H - BOTTOM} ${x(run[0]) - half},${H - BOTTOM}Z`;
    root.append(svg("path", { class: "p99", d: area("p99_ms") }), svg("path", { class: "p95", d: area("p95_ms") }));
    root.append(svg("path", { class: "p50", d: "M" + run.map((i) => `${x(i) - half},${y(points[i].p50_ms)} ${x(i) + half},${y(points[i].p50_ms)}`).join(" L") }));
  }
  box.append(root);
}

// runs groups neighbouring indexes that have a value.
function runs(points) {
  const out = [];
  points.forEach((p, i) => {
    if (!p) return;
    if (i > 0 && points[i - 1]) out[out.length - 1].push(i); else out.push([i]);
  });
  return out;
}
