// The little that a page needs beyond HTML: sliders, copying, drawings, and a live run.
"use strict";

function number(value) {
  // Three digits, as a person would type them.
  return Number(value.toPrecision(3)).toString();
}

function sliders() {
  // A slider is the logarithm of its field.
  for (const range of document.querySelectorAll("input[type=range][data-for]")) {
    const field = document.getElementById(range.dataset.for);
    const follow = () => {
      const value = Number(field.value);
      if (value > 0) range.value = Math.log10(value);
    };
    follow();
    field.addEventListener("input", follow);
    range.addEventListener("input", () => {
      const value = Math.pow(10, Number(range.value));
      const whole = field.id === "examples" || field.id === "lot";
      field.value = whole ? Math.round(Number(value.toPrecision(3))) : number(value);
    });
  }
}

function choices() {
  const form = document.getElementById("plan");
  if (!form) return;
  const show = () => {
    const data = new FormData(form);
    const by = data.get("by");
    for (const one of form.querySelectorAll(".only-epsilon")) one.hidden = by !== "epsilon";
    for (const one of form.querySelectorAll(".only-sigma")) one.hidden = by !== "sigma";
    for (const one of form.querySelectorAll(".only-user")) one.hidden = data.get("unit") !== "user";
    document.getElementById("preset").disabled = !data.get("recipe");
  };
  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => {
    if (event.submitter && event.submitter.id === "preset") event.stopImmediatePropagation();
  }, true);
  show();
}

function copying(event) {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  const done = () => {
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => {});
}

// ---- drawings

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function axis(label, more) {
  return Object.assign({
    label: label, stroke: colour("--faint"), font: "12px system-ui", labelFont: "12px system-ui",
    grid: {stroke: colour("--rule"), width: 1}, ticks: {stroke: colour("--rule"), width: 1},
  }, more || {});
}

const drawn = {};

function draw(place) {
  const source = document.getElementById(place.id + "-data");
  if (!source || typeof uPlot === "undefined") return;
  const data = JSON.parse(source.textContent);
  const kind = place.dataset.plot;
  const options = {width: place.clientWidth, height: 240, cursor: {drag: {x: false, y: false}}};
  let series;
  if (kind === "burn") {
    // Entries have a day and an order; a time of day would be made up.
    const day = (at) => new Date(1000 * at).toISOString().slice(0, 10);
    const days = (_, splits) => splits.map((at, i) =>
      i && day(at) === day(splits[i - 1]) ? "" : day(at));
    options.axes = [axis(null, {space: 90, values: days}), axis("% left", {size: 56})];
    options.scales = {y: {range: [0, 100]}};
    options.series = [{label: "day", value: (_, at) => at === null ? "" : day(at)}, {label: "% left", stroke: colour("--accent"), width: 2,
      fill: colour("--soft"), paths: uPlot.paths.stepped({align: 1})}];
    const now = Date.now() / 1000;
    series = [data.times.concat([Math.max(now, data.times[data.times.length - 1] + 1)]),
      data.left.concat([data.left[data.left.length - 1]])];
  } else {
    const looks = ["--accent", "--second"];
    options.scales = {x: {time: false}};
    const whole = [1, 2, 5].flatMap((one) => [...Array(9).keys()].map((power) => one * 10 ** power));
    options.axes = [axis("steps", {incrs: whole.sort((a, b) => a - b)}), axis(data.label, {size: 56})];
    options.series = [{label: "steps"}].concat(data.lines.map((line, at) => ({
      label: line.name, stroke: colour(looks[at % 2]), width: 2, spanGaps: true,
      points: {show: data.steps.length < 40}})));
    series = [data.steps].concat(data.lines.map((line) => line.values));
  }
  if (drawn[place.id]) drawn[place.id].destroy();
  const made = drawn[place.id] = new uPlot(options, series, place);
  // The legend says where the lines end, unless somebody points elsewhere.
  const rest = () => made.setLegend({idx: series[0].length ? series[0].length - 1 : null});
  setTimeout(rest);  // after its own first look at where the pointer is
  made.over.addEventListener("mouseleave", () => setTimeout(rest));
}

function drawings() {
  for (const place of document.querySelectorAll("[data-plot]")) draw(place);
}

// ---- a live run

function live() {
  const box = document.getElementById("live");
  if (!box || !box.dataset.events) return;
  const put = (name, text) => {
    const place = box.querySelector("[data-live=" + name + "]");
    if (place) place.textContent = text;
  };
  const events = new EventSource(box.dataset.events);
  events.onmessage = (event) => {
    const run = JSON.parse(event.data);
    put("state", run.state);
    put("steps", run.steps.toLocaleString("en"));
    put("left", run.minutes_left === null ? "" : ", about " + run.minutes_left + " min left");
    box.querySelector("[data-live=bar]").value = run.steps;
    const last = run.epochs[run.epochs.length - 1];
    if (last) {
      put("epsilon", last.shown);
      if (last.accuracy !== null) put("accuracy", (100 * last.accuracy).toFixed(2) + " %");
      const places = box.querySelectorAll("[data-metric]");
      // Which metrics a run has is known after its first epoch.
      if (places.length !== Object.keys(last.metrics).length) return window.location.reload();
      for (const one of places) {
        const value = last.metrics[one.dataset.metric];
        one.textContent = value === null ? "–" : Number(value.toPrecision(4)).toString();
      }
    }
    const source = document.getElementById("accuracy-data");
    const data = JSON.parse(source.textContent);
    data.steps = run.epochs.map((one) => one.steps);
    data.lines[0].values = run.epochs.map((one) => data.metric !== null ? one.metrics[data.metric]
      : one.accuracy === null ? null : 100 * one.accuracy);
    source.textContent = JSON.stringify(data);
    drawings();
    if (run.state !== "live" && run.state !== "unknown") {
      events.close();
      window.location.reload();
    }
  };
}

document.addEventListener("DOMContentLoaded", () => {
  sliders();
  choices();
  drawings();
  live();
  document.addEventListener("click", copying);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; drawings(); }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawings);
});
