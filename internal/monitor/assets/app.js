import { clock, el, hour, span, text, theme, words } from "/draw.js";
import { Overview } from "/overview.js";
import { Hub } from "/hub.js";
import { Device } from "/device.js";

const main = document.getElementById("main"), banner = document.getElementById("banner").firstElementChild, age = document.getElementById("age");
const crumbs = document.getElementById("crumbs"), input = document.getElementById("q"), found = document.getElementById("found");

// After this long without a word the page no longer vouches for anything; the server speaks four times a second.
const QUIET_MS = 1000;
// A screen older than this is greyed. Under half a second is normal.
const OLD_MS = 1500;

let page = null, source = null, crumbHub = null, heard = 0, opened = performance.now(), asOf = 0, pipeline = null, findings = [], broken = false, again;

// measured is for the page tests: how long updates kept the main thread.
window.hubstate = { updates: [] };

function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [kind, ...rest] = path.split("/");
  return { kind, id: decodeURIComponent(rest.join("/")), params: new URLSearchParams(query ?? "") };
}

function route() {
  const { kind, id, params } = parse(location.hash);
  const from = document.activeElement;
  if (kind === "hub" && id) page = new Hub(main, id, params);
  else if (kind === "device" && id) page = new Device(main, id);
  else page = new Overview(main);
  drawCrumbs(kind, id);
  if (from && from !== document.body && !document.contains(from)) main.focus({ preventScroll: true });
  connect();
}

function drawCrumbs(kind, id) {
  crumbHub = page.hubID ?? null;
  const up = kind === "device" && page.hubID ? [" / ", el("a", { href: "#/hub/" + encodeURIComponent(page.hubID) }, page.hubID)] : [];
  crumbs.replaceChildren(...(id ? [el("a", { href: "#/" }, "all hubs"), ...up, " / ", id] : []));
  document.title = id ? `${id} · Hubstate monitor` : "Hubstate monitor";
}

function connect() {
  source?.close();
  const query = page.query?.();
  source = new EventSource("/api/v1/live" + (query ? "?" + query : ""));
  opened = performance.now();
  for (const name of ["pulse", "overview", "bands", "hub", "device"]) {
    source.addEventListener(name, (e) => receive(name, e.data));
  }
  source.onerror = () => {
    broken = true;
    judge();
    // The browser tries again by itself unless the answer was not a stream at all (too many pages, token gone).
    if (source.readyState === EventSource.CLOSED) { clearTimeout(again); again = setTimeout(connect, 1000); }
  };
}

function receive(name, data) {
  const start = performance.now();
  const message = JSON.parse(data);
  heard = performance.now();
  broken = false;
  if (message.now) {
    clock.set(message.now);
    asOf = message.as_of ? Date.parse(message.as_of) : 0;
  }
  if (message.pipeline) { pipeline = message.pipeline; findings = message.findings ?? []; }
  page[name]?.(message);
  if (page.hubID && page.hubID !== crumbHub) drawCrumbs("device", page.id);
  judge();
  window.hubstate.updates.push([name, performance.now() - start]);
  if (window.hubstate.updates.length > 400) window.hubstate.updates.splice(0, 200);
}

// judge says what the page can vouch for; it runs by a timer, so silence of the server is noticed too.
function judge() {
  const quiet = performance.now() - (heard || opened);
  if (broken || quiet > QUIET_MS) {
    trust(heard ? "lost" : "none", heard ? `No connection to the monitor for ${span(quiet)}. What you see is from ${hour(clock.now() - quiet)}.` : "No connection to the monitor.");
    text(age, heard ? `seen up to ${asOf ? hour(asOf) : "–"}` : "not connected");
    return;
  }
  if (!asOf) {
    trust("old", worst() ?? "Nothing can be said yet: the view is being built.");
    text(age, "nothing seen yet");
    return;
  }
  const old = clock.now() - asOf;
  text(age, `this screen: ${span(old)} old`);
  if (old > OLD_MS) {
    const why = findings.find((f) => f.question === "pipeline");
    trust("old", `What came after ${hour(asOf)} has not been seen (${span(old)})${why ? ": " + why.text : ""}.`);
    return;
  }
  const bad = findings.filter((f) => f.severity === "bad").length;
  trust(bad ? "bad" : findings.length ? "warn" : "ok", worst() ?? (pipeline?.outbox ? "All is well." : "All is well from Kafka on. What lies before it is not watched."));
}

function worst() {
  if (!findings.length) return null;
  const f = findings[0], more = findings.length - 1;
  return (f.hub ? f.hub + ": " : "") + f.text + (f.since ? `, since ${hour(f.since)}` : "") + (more ? ` (and ${more} more)` : "") + ".";
}

function trust(level, words) {
  if (document.body.dataset.trust !== level) document.body.dataset.trust = level;
  // The age in the sentence moves many times a second; a screen reader hears it when it becomes another sentence.
  text(banner, words);
}

let searching = 0;
async function search() {
  const turn = ++searching, q = input.value.trim();
  if (q.length < 2) { show([]); return; }
  try {
    const answer = await fetch("/api/v1/search?q=" + encodeURIComponent(q));
    const rows = answer.ok ? await answer.json() : [];
    if (turn === searching) show(rows, q);
  } catch { if (turn === searching) show([], q); }
}

// The list may be drawn anew (a slow answer to the last letter) while somebody is already in it: the focus stays on its hit.
function show(rows, q) {
  const held = found.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  found.hidden = !q;
  input.setAttribute("aria-expanded", String(!!q));
  found.replaceChildren(...(rows.length ? rows.map((r) => el("li", {}, el("a", { href: "#/device/" + encodeURIComponent(r.device) }, el("span", { class: "dot " + r.status }, r.device), el("span", { class: "quiet" }, ` ${r.hub}, ${words[r.status]}`))))
    : [el("li", { class: "quiet" }, "No device found.")]));
  if (held && q) ([...found.querySelectorAll("a")].find((a) => a.getAttribute("href") === held) ?? input).focus();
}

function endSearch() {
  clearTimeout(typing);
  searching++; // what is still asked is not shown any more
  show([]);
  input.value = "";
}

const writing = () => /INPUT|SELECT|TEXTAREA/.test(document.activeElement?.tagName);

function keys(e) {
  if (e.key === "/" && !writing()) e.preventDefault();
  if (e.key === "Escape") { endSearch(); if (document.activeElement === input) input.blur(); }
  if ((e.key === "ArrowDown" || e.key === "ArrowUp") && (document.activeElement === input || found.contains(document.activeElement))) {
    const links = [...found.querySelectorAll("a")], at = links.indexOf(document.activeElement);
    const next = links[at + (e.key === "ArrowDown" ? 1 : -1)];
    e.preventDefault();
    (next ?? input).focus();
  }
}

let typing;
input.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, 150); });
document.getElementById("search").addEventListener("submit", (e) => { e.preventDefault(); found.querySelector("a")?.click(); });
found.addEventListener("click", endSearch);
document.addEventListener("keydown", keys);
// On release: a key that moved the focus while it is down would still be written into the field.
document.addEventListener("keyup", (e) => { if (e.key === "/" && !writing()) input.focus(); });
window.addEventListener("hashchange", route);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", theme);
let resizing;
window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(() => page.drawBands?.(), 150); });
setInterval(judge, 200);
route();
