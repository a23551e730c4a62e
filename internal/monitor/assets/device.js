import { ago, count, delay, el, hour, instant, klass, text, words } from "/draw.js";

// Device is the page of one device: each stream's last event with its way to us, and the notable things that happened.
export class Device {
  constructor(main, id) {
    this.id = id;
    this.status = el("span", { class: "dot unknown" });
    this.sub = el("p", { class: "facts" });
    this.streams = new Map();
    this.box = el("div", { class: "pair" });
    this.timeline = el("ul", { class: "timeline" });
    this.heading = el("h1", {}, id, " ");
    this.main = main;
    main.replaceChildren(
      el("section", { class: "vouched" }, this.heading, el("p", {}, this.status), this.sub),
      this.box,
      el("section", { class: "vouched" }, el("h2", {}, "What happened"), this.timeline),
    );
  }

  query() {
    return new URLSearchParams({ device: this.id }).toString();
  }

  device(page) {
    const d = page.device;
    this.hubID = d.hub;
    klass(this.status, "dot " + d.status);
    text(this.status, words[d.status]);
    text(this.sub, [`hub ${d.hub}`, d.live_at ? `last live report ${ago(d.live_at)} ago (${hour(d.live_at)})` : "no live report ever",
      d.link && (d.link === "up" ? "connected" : "disconnected"), d.clock_suspect && "clock suspect", `gaps before us ${count(d.missed)}`].filter(Boolean).join(" · "));
    for (const s of d.streams) {
      if (!this.streams.has(s.stream)) {
        const card = new StreamCard(s.stream);
        this.streams.set(s.stream, card);
        this.box.append(card.section);
      }
      this.streams.get(s.stream).update(s);
    }
    this.drawTimeline(d.timeline ?? []);
  }

  drawTimeline(notes) {
    const key = JSON.stringify(notes);
    if (key === this.noteKey) return;
    this.noteKey = key;
    this.timeline.replaceChildren(...(notes.length ? notes.map(note) : [el("li", { class: "quiet" }, "Nothing unusual since this view knows the device.")]));
  }
}

function note(n) {
  return el("li", {}, el("time", { datetime: n.seen_at }, hour(n.seen_at)), el("span", { class: "quiet" }, `${n.stream} #${n.sequence}`), el("span", {}, ...n.what.map((w) => el("span", { class: "tag " + kind(w) }, wording(w)))));
}

const usual = new Set(["retained", "restated", "clock_right", "connected"]);
const kind = (w) => { const what = w.split(" ")[0]; return usual.has(what) ? "plain" : what; };

function wording(w) {
  const [what, n] = w.split(" ");
  return { reboot: "reboot", wrap: "counter wrapped", clock_suspect: "clock is wrong", clock_right: "clock is right again", retained: "retained copy: no sign of life", restated: "restated by an operator", new: "new epoch",
    missed: `${n} missed before us`, late: `${n} late`, duplicate: `${n} duplicate`, quarantined: `${n} quarantined`, lost: `lost inside: ${n}` }[what] ?? w;
}

const legs = [["occurred", "occurred_at"], ["received", "received_at"], ["committed", "committed_at"], ["published", "published_at"], ["applied", "applied_at"]];

class StreamCard {
  constructor(name) {
    this.status = el("span", { class: "dot" });
    this.numbers = el("dl", { class: "numbers" });
    this.way = el("ol", { class: "legs" }, ...legs.map(([n]) => el("li", {}, el("b", {}, n), el("span"), el("span", { class: "quiet" }))));
    this.state = el("pre", { tabindex: "0", "aria-label": "State" });
    this.section = el("section", { class: "vouched" }, el("h2", {}, name, " ", this.status), this.numbers, this.way, this.state);
  }

  update(s) {
    this.status.hidden = !s.status;
    if (s.status) { klass(this.status, "dot " + s.status); text(this.status, words[s.status]); }
    const facts = [["last live report", s.live_at ? ago(s.live_at) + " ago" : "never"], ["expected every", s.expect_ms ? delay(s.expect_ms) : "only on change"],
      ["sequence", count(s.sequence)], ["epoch", String(s.epoch)], ["device counter", s.counter === null ? "none" : count(s.counter)], ["boot", s.boot === null ? "none" : count(s.boot)],
      ["gaps before us", count(s.missed)], ["late", count(s.late)], ["duplicate", count(s.duplicate)], ["quarantined", count(s.quarantined)],
      ["marks", s.marks ? s.marks.replaceAll("_", " ").replaceAll(",", ", ") : "none"], ["message", s.message_id]];
    while (this.numbers.children.length < facts.length) this.numbers.append(el("div", {}, el("dt"), el("dd")));
    facts.forEach(([k, v], i) => { text(this.numbers.children[i].children[0], k); text(this.numbers.children[i].children[1], v); });
    let before = null;
    legs.forEach(([, field], i) => {
      const li = this.way.children[i], at = s[field] ? Date.parse(s[field]) : null;
      klass(li, at === null ? "none" : "");
      text(li.children[1], at === null ? (i === 0 && s.clock_suspect ? "clock suspect" : "not known") : instant(s[field]));
      text(li.children[2], at !== null && before !== null ? "+" + delay(Math.max(0, at - before)) : "");
      if (at !== null) before = at;
    });
    const state = JSON.stringify(s.state, null, 2);
    text(this.state, state);
  }
}
