// What moves in a page by itself: times, keys, the light, selections, charts. Without it every page still works.
"use strict";

// -- times: texts of <time> and of what counts down move on with the clock of the browser, set right by the server's ---
const two = (number) => String(number).padStart(2, "0");
const skew = Date.now() - Number(document.documentElement.dataset.now || Date.now());
function lasting(seconds) {
  if (seconds < 1) return `${seconds < 0.01 ? Number((seconds * 1000).toPrecision(2)) : Math.round(seconds * 1000)}ms`;
  if (seconds < 59.5) return seconds < 10 ? `${Number(seconds.toPrecision(2))}s` : `${Math.round(seconds)}s`;
  const whole = Math.round(seconds), minutes = Math.floor(whole / 60), hours = Math.floor(whole / 3600), days = Math.floor(whole / 86400);
  if (hours < 1) return `${minutes}m${two(whole % 60)}s`;
  return days < 1 ? `${hours}h${two(minutes % 60)}m` : `${days}d${two(hours % 24)}h`;
}
function tell() {
  const now = Date.now() - skew;
  for (const time of document.querySelectorAll("time[data-relative]")) {
    const seconds = Math.round((now - Date.parse(time.dateTime)) / 1000);
    const said = seconds >= 0 ? (seconds ? `${lasting(seconds)} ago` : "now") : `in ${lasting(-seconds)}`;
    if (time.textContent !== said) time.textContent = said;
  }
}
setInterval(() => document.hidden || tell(), 1000);

// -- the light ---------------------------------------------------------------------------------------------------------
document.getElementById("theme")?.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("hipq-theme", root.dataset.theme); } catch { /* for this page only */ }
  redraw(document);
});

// -- keys --------------------------------------------------------------------------------------------------------------
const base = document.body.dataset.base;
const rows = () => [...document.querySelectorAll("tbody[data-rows] > tr")];
let going = 0;
function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  all[at]?.classList.remove("at");
  next.classList.add("at");
  next.querySelector("a")?.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}
function help() {
  const keys = document.getElementById("keys");
  if (keys && !keys.open) keys.showModal();
}
document.getElementById("help")?.addEventListener("click", help);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const field = event.target.closest?.("input:not([type=checkbox]), select, textarea");
  if (field) {
    if (event.key === "Escape") field.blur();
    return;
  }
  if (going) {
    const where = { o: "/", j: "/jobs", a: "/answers", r: "/rules" }[event.key];
    clearTimeout(going);
    going = 0;
    if (where) location.href = base + where;
    return;
  }
  const here = document.querySelector("tr.at");
  const does = {
    "/": () => document.getElementById("find")?.focus(),
    "?": help,
    "j": () => step(1),
    "k": () => step(-1),
    "x": () => here?.querySelector("input[type=checkbox]")?.click(),
    "p": () => document.getElementById("pause")?.click(),
    "g": () => { going = setTimeout(() => { going = 0; }, 1500); },
    "Enter": () => event.target === document.body && here?.querySelector("a")?.click(),
    "Escape": () => { here?.classList.remove("at"); document.activeElement?.blur(); },
  }[event.key];
  if (!does) return;
  if (event.key !== "Enter" && event.key !== "Escape") event.preventDefault();
  does();
});

// -- selections: a box that checks all boxes of its table, and how many are checked --------------------------------------
document.addEventListener("change", (event) => {
  const box = event.target;
  if (box.matches("[data-check-all]")) {
    for (const one of box.form.querySelectorAll("tbody input[type=checkbox]")) one.checked = box.checked;
  }
  const form = box.form;
  const said = form?.querySelector("[data-checked]");
  if (said) {
    const count = form.querySelectorAll("tbody input[type=checkbox]:checked").length;
    said.textContent = count ? `${count} selected` : "";
  }
  if (box.matches("[data-submit]")) box.form.requestSubmit();
});

// -- copying -------------------------------------------------------------------------------------------------------------
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

// -- charts --------------------------------------------------------------------------------------------------------------
const spread = (value) => value >= 1e6 ? `${value / 1e6}M` : value >= 1e3 ? `${value / 1e3}k` : `${value}`;
function hour(seconds) {
  const at = new Date(seconds * 1000);
  return at.getHours() || at.getMinutes() ? `${two(at.getHours())}:${two(at.getMinutes())}` : `${at.getDate()} ${at.toLocaleString("en", { month: "short" })}`;
}
function draw(plot) {
  const series = JSON.parse(plot.dataset.chart);
  const tones = getComputedStyle(document.documentElement);
  const tone = (name) => tones.getPropertyValue(`--${name}`).trim();
  const said = series.unit === "s" ? lasting : spread;
  const axis = { stroke: tone("faint"), grid: { stroke: tone("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  plot.replaceChildren();
  if (!series.x.length) return;
  new uPlot({
    width: Math.max(plot.clientWidth, 200), height: Number(plot.dataset.height) || 150, cursor: { drag: { x: false, y: false } },
    legend: { live: true, markers: { dash: (chart, place) => chart.series[place].dash ? "dashed" : "solid" } },
    tzDate: (seconds) => new Date(seconds * 1000),
    axes: [{ ...axis, size: 28, values: (_chart, all) => all.map(hour) }, { ...axis, size: 52, values: (_chart, all) => all.map((one) => one == null ? "" : said(one)) }],
    scales: { y: { range: (_chart, _low, high) => [0, Math.max(high * 1.1, series.unit === "s" ? 0.001 : 1)] } },
    series: [
      { value: "{YYYY}-{MM}-{DD} {HH}:{mm}" },
      ...series.lines.map((line) => ({
        label: line.name, stroke: tone(line.tone), width: 1.5, spanGaps: series.unit === "s", points: { size: 4, show: line.values.filter((value) => value != null).length < 12 || undefined }, fill: line.fill ? `color-mix(in srgb, ${tone(line.tone)} 12%, transparent)` : undefined,
        value: (_chart, value) => value == null ? "–" : said(value), dash: line.dash ? [4, 3] : undefined,
      })),
    ],
  }, [series.x, ...series.lines.map((line) => line.values)], plot);
}
function redraw(root) {
  if (typeof uPlot === "undefined") return;
  for (const plot of root.querySelectorAll("[data-chart]")) draw(plot);
}
document.addEventListener("hipq:updated", (event) => { tell(); redraw(event.target); });
let resized = 0;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => redraw(document), 150); });
tell();
redraw(document);
