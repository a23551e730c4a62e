import { ago, count, delay, el, hour, klass, strip, text, words } from "/draw.js";

const filters = ["all", "silent", "connected_silent", "never_seen", "clock_suspect", "gaps"];

// Hub is the page of one hub: its strip, and its devices as a list, the most urgent first.
export class Hub {
  constructor(main, id, params) {
    this.id = id;
    this.filter = params.get("filter") ?? "all";
    this.offset = Number(params.get("offset") ?? 0);
    this.counts = el("p", { class: "counts num" });
    this.facts = el("p", { class: "facts" });
    this.canvas = el("canvas", { class: "strip tall", role: "img" });
    this.canvas.addEventListener("click", (e) => this.open(e));
    this.canvas.addEventListener("mousemove", (e) => this.name(e));
    this.body = el("tbody");
    this.pages = el("p", { class: "pages" });
    this.filters = el("div", { class: "filters" }, ...filters.map((f) => el("a", { href: this.link(f, 0), "aria-current": String(f === this.filter) }, words[f])));
    this.delays = el("tbody");
    main.replaceChildren(
      el("section", { class: "vouched" }, el("h1", {}, id), this.counts, this.canvas,
        el("div", { class: "stripkey" }, el("span", {}, "most urgent"), this.hover = el("span"), el("span", {}, "most recent")), this.facts),
      el("section", { class: "vouched" }, el("h2", {}, "Devices"), this.filters,
        el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "Device"), el("th", {}, "Status"), el("th", { class: "num" }, "Last live report"), el("th", {}, "Silent since / due"), el("th", {}, "Connection"), el("th", {}, "Clock"), el("th", { class: "num" }, "Gaps"))), this.body)), this.pages),
      el("section", { class: "vouched" }, el("h2", {}, "Delay, last two minutes"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, el("th", {}, "Stage"), ...["p50", "p95", "p99", "events"].map((t) => el("th", { class: "num" }, t)))), this.delays))),
    );
  }

  query() {
    return new URLSearchParams({ hub: this.id, filter: this.filter, offset: this.offset }).toString();
  }

  link(filter, offset) {
    return `#/hub/${encodeURIComponent(this.id)}?filter=${filter}&offset=${offset}`;
  }

  hub(page) {
    const h = page.hub, c = h.counts;
    const parts = [["", `${count(c.devices)} devices`], ...["fresh", "silent", "connected_silent", "never_seen", "unknown"].filter((s) => c[s] || s === "fresh").map((s) => ["dot " + s, `${count(c[s])} ${words[s]}`])];
    if (c.clock_suspect) parts.push(["dot clock", `${count(c.clock_suspect)} clock suspect`]);
    while (this.counts.children.length < parts.length) this.counts.append(el("span"));
    while (this.counts.children.length > parts.length) this.counts.lastChild.remove();
    parts.forEach(([k, t], i) => { klass(this.counts.children[i], k); text(this.counts.children[i], t); });
    this.cells = h.strip ?? [];
    this.canvas.setAttribute("aria-label", `Devices by urgency: ${c.fresh} of ${c.devices} fresh`);
    strip(this.canvas, this.cells, page.as_of, page.now);
    text(this.facts, [h.silent_since && `hub silent since ${hour(h.silent_since)}`, h.first_silent_at && `longest silent for ${ago(h.first_silent_at)}`,
      `gaps before us ${count(h.totals.missed)}`, `lost inside ${count(h.totals.lost)}`, `late ${count(h.totals.late)}`, `quarantined ${count(h.totals.quarantined)}`].filter(Boolean).join(" · "));
    this.rows(page.rows ?? []);
    this.drawPages(page);
    this.drawDelays(h.delays ?? []);
  }

  // rows reuses the elements of the list: a focused link stays focused.
  rows(rows) {
    while (this.body.children.length < rows.length) this.body.append(rowElement());
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
    rows.forEach((r, i) => fillRow(this.body.children[i], r));
  }

  drawPages(page) {
    const n = page.rows?.length ?? 0;
    const key = `${page.offset} ${n}`;
    if (key === this.pageKey) return;
    this.pageKey = key;
    const nodes = [el("span", { class: "quiet" }, n ? `${count(page.offset + 1)} to ${count(page.offset + n)}` : "none")];
    if (page.offset > 0) nodes.unshift(el("a", { href: this.link(this.filter, Math.max(0, page.offset - 100)) }, "← before"));
    if (n === 100) nodes.push(el("a", { href: this.link(this.filter, page.offset + n) }, "next →"));
    this.pages.replaceChildren(...nodes);
  }

  drawDelays(list) {
    while (this.delays.children.length < list.length) this.delays.append(el("tr", {}, el("td"), ...[1, 2, 3, 4].map(() => el("td", { class: "num" }))));
    while (this.delays.children.length > list.length) this.delays.lastChild.remove();
    list.forEach((d, i) => [stageWords[d.stage], delay(d.p50_ms), delay(d.p95_ms), delay(d.p99_ms), count(d.count)].forEach((t, k) => text(this.delays.children[i].children[k], t)));
  }

  at(e) {
    const box = this.canvas.getBoundingClientRect();
    return this.cells?.[Math.floor(((e.clientX - box.left) / box.width) * this.cells.length)];
  }

  open(e) {
    const cell = this.at(e);
    if (cell) location.hash = "#/device/" + encodeURIComponent(cell.device);
  }

  name(e) {
    const cell = this.at(e);
    text(this.hover, cell ? `${cell.device}: ${cell.live_at ? "last live report " + ago(cell.live_at) + " ago" : "never seen"}` : "");
  }
}

export const stageWords = { received: "occurred → received", committed: "received → committed", published: "committed → published", applied: "published → applied", whole: "received → applied" };

function rowElement() {
  return el("tr", {}, el("td", {}, el("a")), el("td", {}, el("span")), el("td", { class: "num" }), el("td"), el("td"), el("td"), el("td", { class: "num" }));
}

function fillRow(tr, r) {
  const c = tr.children, link = c[0].firstChild, href = "#/device/" + encodeURIComponent(r.device);
  if (link.getAttribute("href") !== href) link.setAttribute("href", href);
  text(link, r.device);
  klass(c[1].firstChild, "dot " + r.status);
  text(c[1].firstChild, words[r.status]);
  text(c[2], r.live_at ? ago(r.live_at) + " ago" : "never");
  text(c[3], r.due_at ? hour(r.due_at) : "–");
  text(c[4], r.link === "up" ? "connected" : r.link === "down" ? "disconnected" : "–");
  text(c[5], r.clock_suspect ? "suspect" : "");
  text(c[6], r.missed ? count(r.missed) : "");
}
