"use strict";

// The slots of the form, in which a kind and its numbers are chosen. The second rule of a
// side can be missing.
const slots = ["traffic", "a", "a2", "b", "b2"];
const normal = { traffic: "bursts", a: "token-bucket", b: "fixed-window" };

let catalog;
const chosen = {}; // by slot: { kind, numbers: { kind: { name: value } } }; kind is "" if the rule is missing
let seed = 1, linking;

const find = (selector, from = document) => from.querySelector(selector);

// make returns an element with attributes and children.
function make(name, attributes = {}, ...children) {
	const e = document.createElement(name);
	for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
	e.append(...children);
	return e;
}

// shape returns an element of SVG.
function shape(name, attributes = {}, text = "") {
	const e = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
	e.textContent = text;
	return e;
}

const kindsOf = slot => slot === "traffic" ? catalog.traffic : catalog.algorithms;
const kindOf = slot => kindsOf(slot).find(k => k.name === chosen[slot].kind);
const numbersOf = slot => {
	const { kind, numbers } = chosen[slot];
	return numbers[kind] ??= Object.fromEntries(kindOf(slot).numbers.map(n => [n.name, n.default]));
};

// settings returns what package simulate reads.
function settings() {
	const choice = slot => ({ kind: chosen[slot].kind, numbers: numbersOf(slot) });
	const side = name => [name, name + "2"].filter(slot => chosen[slot].kind).map(choice);
	return { seed, traffic: choice("traffic"), sides: [side("a"), side("b")] };
}

// link returns the settings as the part of a URL after #.
function link() {
	const parts = new URLSearchParams();
	for (const slot of slots) {
		if (!chosen[slot].kind) continue;
		parts.set(slot, chosen[slot].kind);
		for (const [name, value] of Object.entries(numbersOf(slot))) parts.set(slot + "." + name, value);
	}
	parts.set("seed", seed);
	return "#" + parts;
}

// read chooses what a link says. Whatever it does not say, or what is not valid there, has
// its default.
function read(hash) {
	const parts = new URLSearchParams(hash.slice(1));
	const whole = (text, min, max, other) => /^\d{1,9}$/.test(text ?? "") && text >= min && text <= max ? Number(text) : other;
	seed = whole(parts.get("seed"), 0, 999999999, 1);
	for (const slot of slots) {
		const named = kindsOf(slot).some(k => k.name === parts.get(slot));
		chosen[slot] = { kind: named ? parts.get(slot) : normal[slot] ?? "", numbers: {} };
		if (!chosen[slot].kind) continue;
		const numbers = numbersOf(slot);
		for (const n of kindOf(slot).numbers) numbers[n.name] = whole(parts.get(slot + "." + n.name), n.min, n.max, n.default);
	}
}

// field returns the label and the control of a number.
function field(slot, n) {
	const id = slot + "-" + n.name;
	const label = make("label", { for: id }, n.label);
	if (n.options) return [label, menu(id, n.options.map((o, i) => [n.min + i, o]), numbersOf(slot)[n.name], v => change(slot, n, Number(v)))];
	const output = make("output", { for: id, id: id + "-value" });
	const show = value => { output.textContent = value + (n.unit ? " " + n.unit : "") };
	const slider = make("input", { type: "range", id, min: n.min, max: n.max });
	slider.value = numbersOf(slot)[n.name];
	show(slider.value);
	slider.addEventListener("input", () => {
		show(slider.value);
		slider.setAttribute("aria-valuetext", output.textContent);
		change(slot, n, Number(slider.value));
	});
	slider.setAttribute("aria-valuetext", output.textContent);
	return [label, output, slider];
}

function menu(id, options, value, chosen) {
	const select = make("select", { id }, ...options.map(([value, text]) => make("option", { value }, text)));
	select.value = value;
	select.addEventListener("change", () => chosen(select.value));
	return select;
}

function change(slot, n, value) {
	numbersOf(slot)[n.name] = value;
	draw();
}

// fill makes the controls of a slot.
function fill(slot) {
	const place = find(`[data-slot="${slot}"]`);
	place.hidden = !chosen[slot].kind;
	place.replaceChildren();
	if (place.hidden) return;
	const label = slot === "traffic" ? "Kind" : slot.endsWith("2") ? "Second algorithm" : "Algorithm";
	const select = menu(slot + "-kind", kindsOf(slot).map(k => [k.name, k.title]), chosen[slot].kind, kind => {
		chosen[slot].kind = kind;
		fill(slot);
		find("#" + slot + "-kind").focus();
		draw();
	});
	if (slot === "traffic") find("#seed").hidden = !kindOf(slot).random;
	place.append(
		make("div", { class: "field" }, make("label", { for: slot + "-kind" }, label), select),
		make("p", { class: "about" }, kindOf(slot).about),
		...kindOf(slot).numbers.map(n => make("div", { class: "field" }, ...field(slot, n))),
	);
}

function fillAll() {
	slots.forEach(fill);
	for (const name of ["a", "b"]) {
		find(`#${name} .second`).textContent = chosen[name + "2"].kind ? "Remove the second rule" : "Add a second rule";
	}
}

// time returns microseconds in words.
function time(us) {
	const units = [["d", 86400e6], ["h", 3600e6], ["min", 60e6], ["s", 1e6], ["ms", 1e3]];
	const [unit, size] = units.find(([, size]) => us >= size && (size !== 60e6 || us >= 120e6)) ?? ["µs", 1];
	const n = us / size;
	return (n < 100 ? Number(n.toPrecision(3)) : Math.round(n)) + " " + unit;
}

const requests = n => n + (n === 1 ? " request" : " requests");

// summary describes an answer to those who do not see the picture, and to those who do.
function summary(a) {
	let text = `Allows ${a.allowed} of ${requests(a.decisions.length)}`;
	if (a.waited) text += `, ${a.waited} of them after a wait of up to ${time(a.longestDelay)}`;
	text += `. Denies ${a.denied}.`;
	if (a.longestRetry > 0) text += ` The longest RetryAfter is ${time(a.longestRetry)}.`;
	if (a.rules.length > 1) {
		const [first, second] = a.deniedBy;
		const both = first + second - a.denied;
		text += ` The first rule denies ${first}, the second ${second}${both ? `, and both deny ${both} of them` : ""}.`;
	}
	return text;
}

const bin = 500000; // microseconds, the width of a bar

// bars returns how many of the times are in each bin.
function bars(times, length) {
	const n = Array(Math.ceil(length / bin)).fill(0);
	for (const at of times) n[Math.floor(at / bin)]++;
	return n;
}

const left = 56, right = 10, gap = 30;

// A Picture is a time line with rows, one below another.
class Picture {
	constructor(place, length, title) {
		this.width = Math.max(place.clientWidth, 240);
		this.length = length;
		this.y = 0;
		this.scale = this.width < 500 ? 1 : 1.25; // of the heights
		this.svg = shape("svg", { role: "img", "aria-label": title, width: this.width });
		place.replaceChildren(this.svg);
	}
	x(at) { return left + at / this.length * (this.width - left - right) }
	add(name, attributes, text) { this.svg.append(shape(name, attributes, text)) }

	// row starts a row for values up to most, and returns the height of a value.
	row(title, height, most, words = String) {
		const top = this.y + gap, bottom = top + height * this.scale;
		this.add("text", { x: left, y: top - 8, class: "title" }, title);
		for (const [value, y] of most > 0 ? [[most, top], [0, bottom]] : [[0, bottom]]) {
			this.add("path", { d: `M${left} ${y + .5}H${this.width - right}`, class: "line" });
			this.add("text", { x: left - 6, y: y + 4, class: "left" }, words(value));
		}
		this.y = bottom;
		return value => bottom - (most > 0 ? value / most * (bottom - top) : 0);
	}

	// stack draws counts of a class on top of those in below.
	stack(counts, below, y, name) {
		const width = this.x(bin) - this.x(0), part = width > 4 ? 1 : 0;
		let d = "";
		counts.forEach((n, i) => {
			if (!n) return;
			d += `M${this.x(i * bin).toFixed(1)} ${y(below[i]).toFixed(1)}h${(width - part).toFixed(1)}V${y(below[i] + n).toFixed(1)}h${(part - width).toFixed(1)}z`;
			below[i] += n;
		});
		this.add("path", { d, class: name });
	}

	axis() {
		const step = this.width < 500 ? 20e6 : 10e6;
		for (let at = 0; at <= this.length; at += step) {
			this.add("path", { d: `M${this.x(at)} ${this.y}v4`, class: "line" });
			this.add("text", { x: this.x(at), y: this.y + 17, class: at ? at === this.length ? "last" : "middle" : "first" }, at / 1e6 + " s");
		}
		this.svg.setAttribute("height", this.y + 22);
	}
}

function drawTraffic(result, most) {
	const p = new Picture(find("#traffic .canvas"), result.length, `${requests(result.arrivals.length)} arrive in ${time(result.length)}`);
	const counts = bars(result.arrivals, result.length);
	p.stack(counts, counts.map(() => 0), p.row("Requests in each ½ s, without retries", 72, most), "arrived");
	p.axis();
}

function drawSide(section, a, length, most) {
	const p = new Picture(find(".canvas", section), length, `${a.rules.join("; ")}. ${summary(a)}`);
	const times = test => bars(a.decisions.filter(test).map(d => d.at), length);
	const allowed = times(d => d.allowed && !d.delay), below = allowed.map(() => 0);
	let y = p.row("Requests in each ½ s", 72, most);
	p.stack(allowed, below, y, "allowed");
	p.stack(times(d => d.allowed && d.delay), below, y, "waited");
	p.stack(times(d => !d.allowed), below, y, "denied");

	y = p.row(a.decisions.some(d => d.client) ? "Remaining, for the first client" : "Remaining", 44, a.limit);
	let d = `M${left} ${y(0)}`;
	for (const r of a.remaining) d += `H${p.x(r.at).toFixed(1)}V${y(r.n).toFixed(1)}`;
	p.add("path", { d: d + `H${p.width - right}V${y(0)}z`, class: "remaining" });

	y = p.row("RetryAfter of the denied requests", 44, a.longestRetry, v => v ? time(v) : "0");
	d = "";
	for (const r of a.decisions) {
		if (!r.allowed && r.retryAfter >= 0) d += `M${p.x(r.at).toFixed(1)} ${y(r.retryAfter).toFixed(1)}h0`;
	}
	p.add("path", { d, class: "retry" });
	p.axis();
}

// draw shows the answers to what is chosen.
function draw() {
	const chosen = settings(), text = simulate(JSON.stringify(chosen)), result = JSON.parse(text);
	globalThis.playground = { settings: chosen, answers: text, link: link() };
	clearTimeout(linking);
	linking = setTimeout(() => history.replaceState(null, "", link()), 250); // browsers limit how often it can be called
	document.querySelectorAll(".copy").forEach(button => { button.textContent = "Copy" });
	find("#copied").textContent = "";
	const state = find("#state");
	state.textContent = result.error ?? "";
	state.hidden = !result.error;
	if (result.error) return;
	let most = 1;
	for (const a of result.sides) if (!a.error) most = Math.max(most, ...bars(a.decisions.map(d => d.at), result.length));
	drawTraffic(result, Math.max(1, ...bars(result.arrivals, result.length)));
	["a", "b"].forEach((name, i) => {
		const section = find("#" + name), a = result.sides[i];
		find(".go", section).textContent = a.code;
		find(".yaml", section).textContent = a.file;
		find(".texts", section).hidden = Boolean(a.error);
		find(".summary", section).textContent = a.error ?? summary(a);
		find(".summary", section).classList.toggle("error", Boolean(a.error));
		if (a.error) find(".canvas", section).replaceChildren();
		else drawSide(section, a, result.length, most);
	});
}

// copy copies a text, and says so in place.
async function copy(text, place) {
	try {
		await navigator.clipboard.writeText(text);
		place.textContent = "Copied";
	} catch {
		place.textContent = "The browser does not let this page copy";
	}
}

function start() {
	catalog = JSON.parse(kinds());
	for (const name of ["a", "b"]) {
		const section = find("#" + name);
		section.append(find("#side").content.cloneNode(true));
		section.querySelectorAll(".slot").forEach((place, i) => { place.dataset.slot = name + (i ? "2" : "") });
		find(".second", section).addEventListener("click", () => {
			const second = chosen[name + "2"];
			second.kind = second.kind ? "" : "sliding-log";
			fillAll();
			draw();
		});
		section.querySelectorAll(".copy").forEach(button => button.addEventListener("click", () => {
			copy(find("code", button.parentElement).textContent, button);
		}));
	}
	find("#seed").addEventListener("click", () => { seed++; draw() });
	find("#link").addEventListener("click", () => copy(new URL(link(), location), find("#copied")));
	const open = url => { read(new URL(url).hash); fillAll(); draw() };
	addEventListener("hashchange", event => open(event.newURL));
	document.querySelectorAll("section").forEach(s => { s.hidden = false });
	open(location);
	let width = innerWidth;
	addEventListener("resize", () => { if (width !== innerWidth) { width = innerWidth; draw() } });
}

const go = new Go();
WebAssembly.instantiateStreaming(fetch("playground.wasm"), go.importObject).then(module => {
	go.run(module.instance);
	start();
}).catch(err => { find("#state").textContent = "The playground cannot start: " + err.message });
