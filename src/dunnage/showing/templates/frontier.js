"use strict";
(() => {
  const read = (id) => document.getElementById(id);
  const data = JSON.parse(read("frontier-data").textContent);
  const chart = document.querySelector(".frontier-chart");
  if (!chart) return;
  const places = ["x", "y", "x1", "x2", "y1", "y2"];
  const marks = data.points.map((point, index) => read(`policy-${index}`));
  const rows = [...document.querySelectorAll("tr[data-point]")];
  const hidden = new Set();
  let selected = data.recommended ?? 0;

  // Scales

  function share(axis, value) {
    const at = axis.log
      ? Math.log(Math.max(value, axis.floor) / axis.floor) / Math.log(axis.most / axis.floor)
      : (value - axis.low) / (axis.high - axis.low);
    return Math.min(Math.max(at, 0), 1);
  }

  function place(element) {
    for (const name of places) {
      if (!(name in element.dataset)) continue;
      const value = Number(element.dataset[name]);
      const { x, y, top, base } = data.axes;
      const where = name[0] === "x" ? `${100 * share(x, value)}%` : base - share(y, value) * (base - top);
      element.setAttribute(name, where);
    }
  }

  function placeAll() {
    const all = places.map((name) => `[data-${name}]`).join(",");
    chart.querySelectorAll(all).forEach(place);
    for (const name of ["x", "y"]) {
      const log = data.axes[name].log;
      chart.querySelector(`.${name}-log`).classList.toggle("off", !log);
      chart.querySelector(`.${name}-even`).classList.toggle("off", log);
      chart.querySelectorAll(`.beyond-${name}`).forEach((item) => item.classList.toggle("off", log));
    }
    placeWord();
  }

  function placeWord() {
    const choice = chart.querySelector(".choice");
    const word = choice.querySelector("text");
    const left = share(data.axes.x, Number(choice.dataset.x)) > 0.5;
    word.setAttribute("x", left ? -14 : 14);
    word.setAttribute("text-anchor", left ? "end" : "start");
    word.setAttribute("y", share(data.axes.y, Number(choice.dataset.y)) > 0.85 ? 16 : -10);
  }

  // One point

  function show(index) {
    const point = data.points[index];
    read("policy-name").textContent = point.name;
    const list = read("policy-facts");
    list.replaceChildren(
      ...point.facts.map(([name, text]) => {
        const line = document.createElement("div");
        const term = document.createElement("dt");
        const value = document.createElement("dd");
        term.textContent = name;
        value.textContent = text;
        line.append(term, value);
        return line;
      }),
    );
    marks.forEach((mark, other) => mark.classList.toggle("shown", other === index));
  }

  function select(index, focus) {
    selected = index;
    marks.forEach((mark, other) => {
      mark.setAttribute("aria-selected", String(other === index));
      mark.setAttribute("tabindex", other === index ? "0" : "-1");
    });
    show(index);
    if (focus) marks[index].focus();
  }

  function shownPoints() {
    const all = data.points.map((point, index) => index);
    return all.filter((index) => !hidden.has(data.points[index].mechanism));
  }

  function step(event) {
    const value = (index) => data.points[index];
    const order = shownPoints().sort(
      (a, b) => value(a).cost[0] - value(b).cost[0] || value(a).risk[0] - value(b).risk[0] || a - b,
    );
    const at = order.indexOf(selected);
    const last = order.length - 1;
    const next = {
      ArrowRight: Math.min(at + 1, last),
      ArrowDown: Math.min(at + 1, last),
      ArrowLeft: Math.max(at - 1, 0),
      ArrowUp: Math.max(at - 1, 0),
      Home: 0,
      End: last,
    }[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    select(order[next], true);
  }

  function makePoints() {
    chart.setAttribute("role", "group");
    const list = chart.querySelector(".policies");
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Policies; use the arrow keys to move between them");
    list.addEventListener("keydown", step);
    marks.forEach((mark, index) => {
      mark.setAttribute("role", "option");
      mark.setAttribute("aria-label", data.points[index].label);
      mark.querySelector("title").remove();
      mark.addEventListener("mouseenter", () => show(index));
      mark.addEventListener("mouseleave", () => show(selected));
      mark.addEventListener("focus", () => select(index, false));
      mark.addEventListener("click", () => select(index, true));
    });
  }

  // Legend

  function toggle(button) {
    const name = button.dataset.mechanism;
    if (!hidden.delete(name)) hidden.add(name);
    button.setAttribute("aria-pressed", String(!hidden.has(name)));
    const isOff = (index) => hidden.has(data.points[index].mechanism);
    marks.forEach((mark, index) => mark.classList.toggle("off", isOff(index)));
    rows.forEach((row) => row.classList.toggle("off", isOff(Number(row.dataset.point))));
    chart.querySelectorAll(".stair").forEach((line) => line.classList.toggle("off", hidden.size > 0));
    const left = shownPoints();
    if (left.length && isOff(selected)) select(left[0], false);
    ask();
  }

  // What to choose: the first that keeps to the limits in the order that the advice made, or else the closest

  function choose(data, hidden, limit) {
    const kind = limit.cost === null ? "risk" : limit.risk === null ? "cost" : "both";
    const shown = data.ranking[kind].filter(([index]) => !hidden.has(data.points[index].mechanism));
    const usable = shown.filter(([, group]) => group === shown[0][1]).map(([index]) => data.points[index]);
    const over = (measure, most) => (most === null ? 0 : Math.max(measure[2] - most, 0));
    const excess = (point) => point.vague + over(point.cost, limit.cost) + over(point.risk, limit.risk);
    const fitting = usable.find((point) => excess(point) <= 1e-9);
    if (fitting || !usable.length) return { point: fitting ?? null, meets: Boolean(fitting) };
    const first = usable.filter((point) => point.basis === usable[0].basis);
    return { point: first.reduce((best, point) => (excess(point) < excess(best) ? point : best)), meets: false };
  }

  function limitOf(field, given, convert) {
    if (field.value === field.defaultValue) return given;
    const number = Number(field.value);
    return field.value.trim() === "" || !(number >= 0) ? null : convert(number);
  }

  function currentLimit() {
    const odds = data.words.odds;
    const asRisk = (number) => (odds ? (number >= 1 ? 1 / number : null) : number / 100);
    return {
      cost: limitOf(read("most-cost"), data.limit.cost, (number) => number / 100),
      risk: limitOf(read("most-risk"), data.limit.risk, asRisk),
    };
  }

  function drawLimit(name, value) {
    const line = chart.querySelector(`.limit-${name}`);
    const axis = data.axes[name];
    const inside = value !== null && value <= (axis.log ? axis.most : axis.high);
    line.classList.toggle("off", !inside);
    if (!inside) return;
    line.querySelector("title")?.remove();
    line.dataset[`${name}1`] = line.dataset[`${name}2`] = value;
    place(line);
  }

  function drawLimits() {
    const limit = currentLimit();
    drawLimit("x", limit.cost);
    drawLimit("y", limit.risk);
  }

  function ask() {
    const limit = currentLimit();
    drawLimits();
    const output = read("choice-words");
    const asGiven = limit.cost === data.limit.cost && limit.risk === data.limit.risk && !hidden.size;
    if (limit.cost === null && limit.risk === null) {
      output.textContent = "Set a limit on the cost, on the risk, or on both.";
      return;
    }
    const picked = asGiven && data.recommended !== null
      ? { point: data.points[data.recommended], meets: data.meets }
      : choose(data, hidden, limit);
    const choice = chart.querySelector(".choice");
    choice.classList.toggle("off", picked.point === null);
    read("choice-toml").textContent = picked.point?.toml ?? "";
    if (picked.point === null) {
      output.textContent = "None of the policies shown promises anything.";
      return;
    }
    const index = data.points.indexOf(picked.point);
    choice.dataset.x = picked.point.cost[0];
    choice.dataset.y = picked.point.risk[0];
    place(choice);
    choice.querySelector("text").textContent = asGiven && picked.meets ? "recommended" : picked.meets ? "best" : "closest";
    placeWord();
    const words = `${picked.point.name}: ${picked.point.words}.`;
    const start = picked.meets ? "" : "No policy shown is within the limits, counting the upper ends of intervals. The closest is ";
    output.textContent = start + words + (picked.meets ? "" : " It does NOT stay within your limits.");
    read("choice-file").hidden = index === data.recommended;
    select(index, false);
  }

  function copy() {
    const source = read("choice-toml");
    const done = read("copy-done");
    const mark = () => {
      const range = document.createRange();
      range.selectNodeContents(source);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      done.textContent = "The text is selected. Copy it with Ctrl+C or Command+C.";
    };
    if (!navigator.clipboard) return mark();
    navigator.clipboard.writeText(source.textContent).then(() => (done.textContent = "Copied."), mark);
  }

  // Table

  function sort(key, down) {
    const value = (row) => data.points[Number(row.dataset.point)].keys[key];
    const way = down ? -1 : 1;
    const compare = (a, b) => (a < b ? -way : a > b ? way : 0);
    const sorted = [...rows].sort((a, b) => compare(value(a), value(b)) || a.dataset.point - b.dataset.point);
    rows[0].parentNode.append(...sorted);
    for (const head of document.querySelectorAll("th[data-key]")) {
      head.setAttribute("aria-sort", head.dataset.key === key ? (down ? "descending" : "ascending") : "none");
    }
  }

  function makeTable() {
    for (const head of document.querySelectorAll("th[data-key]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => sort(head.dataset.key, head.getAttribute("aria-sort") === "ascending"));
    }
    read("sort-by").addEventListener("change", (event) => sort(event.target.value, false));
  }

  makePoints();
  makeTable();
  select(selected, false);
  for (const button of document.querySelectorAll("button[data-mechanism]")) {
    button.disabled = false;
    button.addEventListener("click", () => toggle(button));
  }
  for (const name of ["x", "y"]) {
    const box = read(`log-${name}`);
    box.checked = data.axes[name].log;
    box.addEventListener("change", () => {
      data.axes[name].log = box.checked;
      placeAll();
      drawLimits();
    });
  }
  const slider = read("cost-slider");
  const field = read("most-cost");
  slider.addEventListener("input", () => {
    field.value = slider.value;
    ask();
  });
  field.addEventListener("input", () => {
    slider.value = field.value;
    ask();
  });
  read("most-risk").addEventListener("input", ask);
  read("copy").addEventListener("click", copy);
  document.querySelectorAll("[data-script]").forEach((item) => (item.hidden = false));
})();
