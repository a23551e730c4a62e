import { ago, bands, count, delay, el, hour, klass, span, strip, text, words } from "/draw.js";

const statuses = ["fresh", "silent", "connected_silent", "never_seen", "unknown"];

// Overview is the first page: is anything wrong, where, since when. It builds its elements once and then only changes text.
export class Overview {
  constructor(main) {
    this.hubs = new Map();
    this.stage = "whole";
    this.findings = el("ul", { class: "findings" });
    this.way = el("ol", { class: "way" });
    this.list = el("ul", { class: "hubs vouched" });
    this.chart = el("div");
    this.losses = el("div");
    this.rejects = el("div");
    const stages = el("select", { id: "stage" });
    for (const [v, t] of [["whole", "received → applied (all that is ours)"], ["received", "occurred → received (the device's clock)"],
      ["committed", "received → committed"], ["published", "committed → published"], ["applied", "published → applied"]]) {
      stages.append(el("option", { value: v }, t));
    }
    stages.addEventListener("change", () => { this.stage = stages.value; this.drawBands(); });
    main.replaceChildren(
      el("section", { id: "wrong", "aria-label": "What is wrong" }, el("h2", {}, "Is anything wrong?"), this.findings),
      el("section", {}, el("h2", {}, "The way of a report"), this.way),
      el("section", {}, el("h2", {}, "Hubs"), this.list),
      el("div", { class: "pair" },
        el("section", { class: "vouched" }, el("h2", {}, "Delay, last hour"), el("p", { class: "key" }, el("label", { for: "stage" }, "Stage "), stages),
          this.chart, el("p", { class: "key" }, "line: half of the events · dark band: 95 % · light band: 99 %")),
        el("section", { class: "vouched" }, el("h2", {}, "Losses inside the pipeline"), this.losses, el("h2", { class: "later" }, "Rejected in the last hour"), this.rejects)),
    );
  }

  // pulse comes four times a second: the state of the parts and the findings.
  pulse(p) {
    this.drawFindings(p.findings ?? [], p.pipeline.outbox);
    this.drawWay(p);
  }

  overview(o) {
    this.pulse(o);
    this.drawHubs(o);
    this.drawLosses(o.losses ?? []);
    this.drawRejects(o.pipeline.outbox);
  }

  bands(minutes) {
    this.minutes = minutes;
    this.drawBands();
  }

  drawBands() { if (this.minutes) bands(this.chart, this.minutes, this.stage); }

  drawFindings(list, outbox) {
    const nothing = outbox ? "No device is silent, nothing waits, nothing was lost." : "No device is silent, nothing was lost on the topic. What waits before Kafka is not watched.";
    const key = JSON.stringify([nothing, list.map((f) => [f.severity, f.hub, f.text, f.since])]);
    if (key !== this.shown) {
      this.shown = key;
      this.findings.replaceChildren(...(list.length ? list.map(finding) : [el("li", { class: "good" }, el("span", { class: "what" }, "nothing"), el("span", {}, nothing))]));
      this.since = list.map((f) => f.since);
    }
    this.findings.querySelectorAll(".since").forEach((n, i) => text(n, this.since[i] ? `since ${hour(this.since[i])} (${ago(this.since[i])})` : ""));
  }

  drawWay(p) {
    const parts = wayOf(p);
    while (this.way.children.length < parts.length) this.way.append(el("li", {}, el("b"), el("span"), el("span", { class: "quiet" })));
    while (this.way.children.length > parts.length) this.way.lastChild.remove();
    parts.forEach(([state, name, first, second], i) => {
      const li = this.way.children[i];
      klass(li, state);
      text(li.children[0], name);
      text(li.children[1], first);
      text(li.children[2], second);
    });
  }

  drawHubs(o) {
    for (const h of o.hubs ?? []) {
      if (!this.hubs.has(h.id)) {
        const row = new HubRow(h.id);
        this.hubs.set(h.id, row);
        this.list.append(row.li);
      }
      this.hubs.get(h.id).update(h, o);
    }
    const known = new Set((o.hubs ?? []).map((h) => h.id));
    for (const [id, row] of this.hubs) if (!known.has(id)) { row.li.remove(); this.hubs.delete(id); }
    if (this.hubs.size === 0 && !this.empty) this.list.append(this.empty = el("li", { class: "quiet" }, "No device has been seen yet."));
    if (this.hubs.size > 0 && this.empty) { this.empty.remove(); this.empty = null; }
  }

  drawLosses(list) {
    const key = JSON.stringify(list);
    if (key === this.lossKey) return;
    this.lossKey = key;
    if (!list.length) { this.losses.replaceChildren(el("p", { class: "quiet" }, "None: every number of every sequence arrived or was left out on purpose.")); return; }
    const body = el("tbody");
    for (const l of list) {
      body.append(el("tr", {}, el("td", {}, hour(l.seen_at)), el("td", {}, l.hub), el("td", {}, el("a", { href: "#/device/" + encodeURIComponent(l.device) }, l.device)), el("td", {}, l.stream), el("td", { class: "num" }, l.range)));
    }
    this.losses.replaceChildren(el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...["Seen", "Hub", "Device", "Stream"].map((t) => el("th", {}, t)), el("th", { class: "num" }, "Numbers"))), body)));
  }

  drawRejects(outbox) {
    const list = outbox?.rejects_last_hour ?? [];
    const key = JSON.stringify([!!outbox, list, outbox?.possible_gaps_last_hour]);
    if (key === this.rejectKey) return;
    this.rejectKey = key;
    const nodes = list.length ? [el("table", {}, el("tbody", {}, ...list.map((r) => el("tr", {}, el("td", {}, r.reason.replaceAll("_", " ")), el("td", { class: "num" }, count(r.count))))))]
      : [el("p", { class: "quiet" }, outbox ? "None." : "Not watched: this monitor has no database.")];
    if (outbox?.possible_gaps_last_hour) nodes.push(el("p", {}, `${outbox.possible_gaps_last_hour} windows in which reports may have been lost before us.`));
    this.rejects.replaceChildren(...nodes);
  }
}

function finding(f) {
  const what = f.hub ? el("span", {}, el("a", { href: "#/hub/" + encodeURIComponent(f.hub) }, f.hub), ": " + f.text) : el("span", {}, f.text);
  return el("li", { class: f.severity }, el("span", { class: "what" }, f.question), what, el("span", { class: "since" }));
}

// wayOf says each part's state: "" good, warn, bad, none (not watched).
function wayOf(p) {
  const l = p.pipeline, b = l.outbox;
  const bad = (h) => (h.ok ? "" : h.since ? "bad" : "none");
  const parts = [];
  if (!b) parts.push(["none", "Ingest, outbox, relay", "not watched", "no database is configured"]);
  if (b) {
    const late = b.oldest_unpublished_ms > 2000;
    parts.push([!b.ok ? "bad" : b.lanes_alive < b.lanes ? "bad" : b.lanes ? "" : "none", "Ingest", b.ok ? `${b.lanes_alive} of ${b.lanes} lanes read` : "unknown", b.lanes_down ? "down: " + b.lanes_down : ""]);
    parts.push([bad(b), "Database", b.ok ? "answers" : b.reason || "was not asked yet", b.dead ? `${count(b.dead)} dead letters` : "no dead letters"]);
    parts.push([!b.ok ? "bad" : b.relays === 0 && b.buckets > 0 || b.halted ? "bad" : late ? "warn" : "", "Relay",
      b.ok ? (b.relays === 1 ? "1 instance" : `${b.relays} instances`) : "unknown",
      b.pending ? `${b.pending_is_lower_bound ? "over " : ""}${count(b.pending)} waiting, oldest ${span(b.oldest_unpublished_ms)}` : "nothing waits"]);
  }
  parts.push([bad(l.kafka), "Kafka", l.kafka.ok ? "answers" : l.kafka.reason || "was not asked yet", l.lag_records ? `${count(l.lag_records)} records to read` : "read to the end"]);
  parts.push([bad(l.view) || bad(l.consumer), "View", l.view.ok ? "answers" : l.view.reason || "was not asked yet", l.consumer.ok ? "" : l.consumer.reason || ""]);
  return parts;
}

class HubRow {
  constructor(id) {
    this.counts = Object.fromEntries(statuses.map((s) => [s, el("span", { class: "dot " + s })]));
    this.clock = el("span", { class: "dot clock" });
    this.devices = el("span", { class: "quiet" });
    this.state = el("span");
    this.canvas = el("canvas", { class: "strip", role: "img" });
    this.facts = el("p", { class: "facts" });
    this.li = el("li", {},
      el("div", { class: "hubline" }, el("a", { href: "#/hub/" + encodeURIComponent(id) }, id), this.devices, el("span", { class: "counts num" }, ...Object.values(this.counts), this.clock), this.state),
      this.canvas, el("div", { class: "stripkey" }, el("span", {}, "most urgent"), el("span", {}, "a bar is an equal share of the devices and shows its most urgent one"), el("span", {}, "most recent")), this.facts);
    for (let i = 0; i < 6; i++) this.facts.append(el("span"));
  }

  update(h, o) {
    text(this.devices, count(h.counts.devices) + " devices");
    for (const s of statuses) {
      const n = h.counts[s];
      this.counts[s].hidden = n === 0 && s !== "fresh";
      text(this.counts[s], `${count(n)} ${words[s]}`);
    }
    this.clock.hidden = h.counts.clock_suspect === 0;
    text(this.clock, `${count(h.counts.clock_suspect)} clock suspect`);
    const silent = h.counts.silent + h.counts.connected_silent;
    text(this.state, h.silent_since ? `hub silent since ${hour(h.silent_since)}` : silent ? `longest silent for ${ago(h.first_silent_at)}` : "");
    this.canvas.setAttribute("aria-label", `${h.counts.fresh} of ${h.counts.devices} devices fresh, ${silent} silent`);
    strip(this.canvas, h.strip ?? [], o.as_of, o.now);
    const whole = h.delays?.find((d) => d.stage === "whole");
    const facts = [whole ? `delay p50 ${delay(whole.p50_ms)}, p95 ${delay(whole.p95_ms)}, p99 ${delay(whole.p99_ms)}` : "no delay measured",
      `gaps before us ${count(h.totals.missed)}`, `lost inside ${count(h.totals.lost)}`, `late ${count(h.totals.late)}`, `duplicate ${count(h.totals.duplicate)}`, `quarantined ${count(h.totals.quarantined)}`];
    facts.forEach((f, i) => text(this.facts.children[i], f));
    klass(this.facts.children[2], h.totals.lost ? "alarm" : "");
  }
}
