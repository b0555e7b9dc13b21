// How figures are drawn: numbers in, SVG out.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const COLOURS = 7;
const DASHES = ["", "7 3", "2 2.5", "9 3 2 3", "14 4", "5 2 1.5 2 1.5 2"];
const MARKS = [
  "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0z",
  "M-3,-3h6v6h-6z",
  "M0,-4.2L4,3H-4z",
  "M0,-4.5L4,0L0,4.5L-4,0z",
  "M0,4.2L4,-3H-4z",
  "M-4,0H4M0,-4V4",
  "M0,-4.4L4.2,-1.4L2.6,3.6H-2.6L-4.2,-1.4z",
  "M-4.5,0L0,-2L4.5,0L0,2z",
];
const CROSS = "M-5,-5L5,5M-5,5L5,-5"; // diverged; never the mark of a method

/* ---------- helpers ---------- */

function built(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== ""));
  return element;
}
const h = (name, attributes = {}, ...children) => built(document.createElement(name), attributes, children);
const s = (name, attributes = {}, ...children) => built(document.createElementNS(SVG, name), attributes, children);

const colour = style => `var(--method-${style % COLOURS})`;
const dash = style => DASHES[style % DASHES.length] || null;
const mark = (style, x, y) =>
  s("path", {
    class: "mark",
    d: MARKS[style % MARKS.length],
    transform: `translate(${x},${y})`,
    stroke: colour(style),
    fill: style % 2 ? "var(--paper)" : colour(style),
  });
const swatch = style =>
  s(
    "svg",
    {class: "swatch", viewBox: "0 0 30 12", "aria-hidden": "true"},
    s("path", {d: "M0,6H30", stroke: colour(style), "stroke-width": 2, "stroke-dasharray": dash(style), fill: "none"}),
    mark(style, 15, 6),
  );

const whole = value => (value === null || value === undefined ? "\u2013" : Math.round(value).toLocaleString("en-US"));
const plain = value =>
  value === null || value === undefined
    ? "\u2013"
    : Number.isInteger(value) && Math.abs(value) < 1e7
      ? String(value)
      : String(+value.toPrecision(4));
function si(value) {
  // 12,300,000 -> 12.3 M
  const size = Math.abs(value);
  for (const [unit, at] of [
    ["T", 1e12],
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e4],
  ]) {
    if (size >= at) return `${+(value / (unit === "k" ? 1e3 : at)).toPrecision(4)} ${unit}`;
  }
  return plain(value);
}
const spread = end =>
  !end
    ? "\u2013"
    : end.mean.toFixed(digits(end.mean)) + (end.sd === null ? "" : ` \u00b1 ${end.sd.toFixed(digits(end.mean))}`);
const digits = value => (Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3);
const values = pairs =>
  Object.entries(pairs ?? {})
    .map(([key, value]) => `${key} = ${typeof value === "number" ? plain(value) : value}`)
    .join(", ");
const stated = method => (method.state === "done" ? method.label : `${method.label} (${method.state})`);
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
const capital = text => text[0].toUpperCase() + text.slice(1);

/* ---------- the length of text ---------- */

function lengthOf(label, picture) {
  const text = picture.appendChild(s("text", {}, label)),
    length = text.getComputedTextLength();
  text.remove();
  return length;
}
function fit(text, room) {
  // text that is too long ends in an ellipsis; the tooltip has all of it
  const all = text.textContent;
  let length = all.length;
  while (length > 1 && text.getComputedTextLength() > room)
    text.textContent = all.slice(0, --length).trimEnd() + "\u2026";
  if (length < all.length) text.append(s("title", {}, all));
}

/* ---------- axes ---------- */

function ticks(low, high, log, most) {
  if (log) {
    const decades = Math.log10(high / low),
      found = [];
    const factors = decades > 2.5 ? [1] : [1, 2, 5];
    const skip = Math.max(1, Math.ceil(decades / most));
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
      for (const f of factors) {
        const v = f * 10 ** e;
        if (v >= low * 0.999 && v <= high * 1.001 && (f > 1 || e % skip === 0)) found.push(v);
      }
    }
    if (found.length > 1) return found;
  }
  const raw = (high - low) / most,
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(f => f * power).find(f => f >= raw);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++)
    found.push(+(i * step).toPrecision(12));
  return found;
}

function scale(values, log, from, to, pad, ends = []) {
  // ends: values that the scale includes, without padding beyond them
  const usable = [...values, ...ends].filter(v => v !== null && Number.isFinite(v) && (!log || v > 0));
  let low = Math.min(...usable),
    high = Math.max(...usable);
  if (!usable.length) [low, high] = log ? [1, 10] : [0, 1];
  if (low === high)
    [low, high] = log ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 10, high + (Math.abs(high) || 1) / 10];
  const f = log ? Math.log10 : v => v,
    room = pad * (f(high) - f(low));
  const a = f(low) - (ends.includes(low) ? 0 : room),
    b = f(high) + room,
    back = log ? v => 10 ** v : v => v;
  const at = v => from + ((f(v) - a) / (b - a)) * (to - from);
  return Object.assign(at, {low: back(a), high: back(b), log, has: v => v !== null && (!log || v > 0)});
}

/* ---------- lines: curves and sensitivity ---------- */

// series: {label, style, x, mean, low, high, seeds, of, diverged}; level: {label, style, value};
// span: the range that the y axis includes; guessing: the accuracy of guessing
function lines(plot, {series, level = [], span = [], guessing = 0, xlabel, ylabel, xlog, ylog, alt}) {
  const width = Math.max(280, plot.clientWidth || 720),
    roomy = width >= 560;
  const height = Math.round(Math.min(480, Math.max(270, width * 0.56)));
  const picture = s("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": alt});
  plot.replaceChildren(picture, h("div", {class: "readout", role: "status"})); // from here on text can be measured
  const longest = Math.max(0, ...[...series, ...level].map(each => lengthOf(each.label, picture)));
  const box = {left: 56, right: width - (roomy ? Math.min(230, 24 + longest) : 14), top: 14, bottom: height - 44};
  const strip = 13 * series.filter(each => each.crosses?.length).length; // below the scores, for crosses at values that diverged
  const flat = key => series.flatMap(each => each[key]);
  const X = scale([...flat("x"), ...series.map(each => each.theory ?? null)], xlog, box.left, box.right, 0.015);
  const Y = scale(
    [...flat("mean"), ...flat("low"), ...flat("high"), ...level.map(l => l.value)],
    ylog,
    box.bottom - strip,
    box.top,
    0.04,
    span,
  );

  for (const v of ticks(Y.low, Y.high, ylog, 6)) {
    picture.append(
      s("path", {class: "grid", d: `M${box.left},${Y(v)}H${box.right}`}),
      s("text", {class: "soft", x: box.left - 8, y: Y(v) + 4, "text-anchor": "end"}, si(v)),
    );
  }
  for (const v of ticks(X.low, X.high, xlog, roomy ? 7 : 4)) {
    picture.append(
      s("path", {class: "axis", d: `M${X(v)},${box.bottom}v5`}),
      s("text", {class: "soft", x: X(v), y: box.bottom + 18, "text-anchor": "middle"}, si(v)),
    );
  }
  picture.append(
    s("path", {class: "axis", d: `M${box.left},${box.bottom}H${box.right}`}),
    s(
      "text",
      {x: (box.left + box.right) / 2, y: height - 8, "text-anchor": "middle"},
      xlabel + (xlog ? ", log scale" : ""),
    ),
    s(
      "text",
      {transform: `translate(13,${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle"},
      ylabel + (ylog ? ", log scale" : ""),
    ),
  );

  if (guessing && (!ylog || guessing >= Y.low))
    picture.append(
      s("path", {class: "cursor guessing theory", d: `M${box.left},${Y(guessing)}H${box.right}`}),
      s("text", {class: "soft", x: box.left + 4, y: Y(guessing) - 4}, "guessing"),
    );

  const ends = [];
  for (const each of level) {
    picture.append(
      s("path", {
        class: "line",
        d: `M${box.left},${Y(each.value)}H${box.right}`,
        stroke: colour(each.style),
        "stroke-dasharray": dash(each.style),
        "data-method": each.label,
      }),
    );
    ends.push({label: each.label, style: each.style, x: box.right, y: Y(each.value)});
  }
  let crossed = 0;
  series.forEach((each, n) => {
    const group = s("g", {class: "method", "data-method": each.label}),
      at = [];
    each.x.forEach((x, i) => X.has(x) && Y.has(each.mean[i]) && at.push(i));
    for (let from = 0, to; from < at.length; from = to) {
      // a new segment where the number of seeds changes
      for (to = from + 1; to < at.length && each.seeds[at[to]] === each.seeds[at[from]];) to++;
      const piece = at.slice(from, to),
        part = each.seeds[piece[0]] < each.of;
      if (each.seeds[piece[0]] > 1) {
        const bottom = i => Y(Y.has(each.low[i]) ? each.low[i] : Y.low);
        group.append(
          s("path", {
            class: "band",
            fill: colour(each.style),
            d:
              "M" +
              piece.map(i => `${X(each.x[i])},${Y(each.high[i])}`).join("L") +
              "L" +
              piece
                .slice()
                .reverse()
                .map(i => `${X(each.x[i])},${bottom(i)}`)
                .join("L") +
              "z",
          }),
        );
      }
      group.append(
        s("path", {
          class: part ? "line part" : "line",
          stroke: colour(each.style),
          "stroke-dasharray": dash(each.style),
          d: "M" + piece.map(i => `${X(each.x[i]).toFixed(1)},${Y(each.mean[i]).toFixed(1)}`).join("L"),
        }),
      );
    }
    const every = Math.max(1, Math.ceil(at.length / 9));
    at.forEach(
      (i, k) =>
        (k % every === n % every || at.length < 10) && group.append(mark(each.style, X(each.x[i]), Y(each.mean[i]))),
    );
    if (each.theory)
      group.append(
        s("path", {
          class: "cursor theory",
          d: `M${X(each.theory)},${box.top}V${box.bottom}`,
          stroke: colour(each.style),
        }),
      );
    if (each.crosses?.length) crossed++;
    for (const x of each.crosses ?? [])
      group.append(
        s("path", {
          class: "mark cross",
          d: CROSS,
          transform: `translate(${X(x)},${box.bottom + 6 - 13 * crossed})`,
          stroke: colour(each.style),
          fill: "none",
        }),
      );
    const last = at.at(-1);
    if (last !== undefined) {
      const [x, y] = [X(each.x[last]), Y(each.mean[last])];
      if (each.diverged)
        group.append(
          s("path", {
            class: "mark",
            d: CROSS,
            transform: `translate(${x},${y})`,
            stroke: colour(each.style),
            fill: "none",
          }),
        );
      ends.push({label: each.label, style: each.style, x, y});
    }
    picture.append(group);
  });
  if (roomy) direct(picture, ends, box, width);
  if (series.length) follow(plot, picture, series, X, Y, box, width, xlabel);
}

function direct(picture, ends, box, width) {
  // the name of each line at its end, without overlap
  ends.sort((a, b) => a.y - b.y);
  const step = Math.min(15, (box.bottom - box.top) / Math.max(1, ends.length - 1));
  ends.forEach((end, i) => {
    end.to = Math.max(end.y, i ? ends[i - 1].to + step : box.top);
  });
  for (let i = ends.length - 1, floor = box.bottom; i >= 0; i--, floor -= step)
    ends[i].to = Math.min(ends[i].to, floor);
  for (const {label, style, x, y, to} of ends) {
    picture.append(
      s("path", {
        class: "leader",
        "stroke-dasharray": box.right - x > 60 ? "1 4" : null,
        d: `M${x + 5},${y}L${box.right + 14},${to}`,
      }),
      s("text", {x: box.right + 17, y: to + 4, class: "direct"}, label),
    );
    picture.lastChild.style.fill = colour(style);
    fit(picture.lastChild, width - box.right - 18);
  }
}

function follow(plot, picture, series, X, Y, box, width, xlabel) {
  // the read-out: pointer or arrow keys
  const readout = plot.querySelector(".readout");
  const all = [...new Set(series.flatMap(each => each.x))].filter(X.has).sort((a, b) => a - b);
  const nearest = (xs, pixel) =>
    xs.reduce(
      (best, x) => (X.has(x) && (best === null || Math.abs(X(x) - pixel) < Math.abs(X(best) - pixel)) ? x : best),
      null,
    );
  let now = null;
  function at(x) {
    picture.querySelectorAll(".cursor:not(.theory)").forEach(old => old.remove());
    now = x;
    if (x === null) return readout.replaceChildren();
    picture.append(s("path", {class: "cursor", d: `M${X(x)},${box.top}V${box.bottom}`}));
    const lines = series
      .map(each => {
        const i = each.x.indexOf(nearest(each.x, X(x)));
        return {each, i, mean: i < 0 ? null : each.mean[i]};
      })
      .filter(line => line.mean !== null)
      .sort((a, b) => b.mean - a.mean);
    readout.replaceChildren(
      h("b", {}, `${xlabel}: ${si(x)}`),
      ...lines.map(({each, i, mean}) =>
        h(
          "span",
          {},
          swatch(each.style),
          `${each.label}: ${plain(mean)}` +
            (each.seeds[i] > 1 ? ` (${plain(each.low[i])} to ${plain(each.high[i])})` : "") +
            (each.seeds[i] < each.of ? `, ${each.seeds[i]} of ${each.of} seeds` : ""),
        ),
      ),
    );
    const right = X(x) > (box.left + box.right) / 2;
    readout.style.left = right ? `${(100 * (box.left + 6)) / width}%` : "auto";
    readout.style.right = right ? "auto" : `${(100 * (width - box.right + 6)) / width}%`;
  }
  function point(event) {
    const frame = picture.getBoundingClientRect();
    at(nearest(all, ((event.clientX - frame.left) * width) / frame.width));
  }
  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  // lifting a finger also fires pointerleave, but the reader needs the values; a tap elsewhere blurs
  picture.addEventListener("pointerleave", event => event.pointerType !== "touch" && at(null));
  picture.addEventListener("blur", () => at(null));
  picture.addEventListener("keydown", event => {
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (event.key === "Escape") at(null);
    if (!move) return;
    event.preventDefault();
    const i = now === null ? (move > 0 ? 0 : all.length - 1) : all.indexOf(now) + move;
    at(all[Math.max(0, Math.min(all.length - 1, i))]);
  });
}

/* ---------- bars and the client-by-class picture ---------- */

function trafficBars(plot, rows, alt) {
  const width = Math.max(280, plot.clientWidth || 720),
    left = 46,
    line = 60;
  const most = Math.max(...rows.flatMap(row => [row.bits_up, row.bits_down])),
    room = width - left - 84;
  const picture = s(
    "svg",
    {viewBox: `0 0 ${width} ${rows.length * line}`, role: "img", "aria-label": alt},
    s(
      "defs",
      {},
      s(
        "pattern",
        {id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)"},
        s("path", {class: "axis", d: "M0,0V5"}),
      ),
    ),
  );
  rows.forEach((row, n) => {
    const top = n * line;
    picture.append(s("text", {class: "name", x: 0, y: top + 14}, row.label));
    [
      ["up", row.bits_up, row.value_bits_up],
      ["down", row.bits_down, row.value_bits_down],
    ].forEach(([name, all, valueBits], k) => {
      const y = top + 20 + 16 * k,
        size = v => (room * v) / most;
      picture.append(
        s("text", {class: "soft", x: left - 8, y: y + 11, "text-anchor": "end"}, name),
        s("rect", {class: "bar", x: left, y, width: size(valueBits), height: 13}),
        s("rect", {x: left + size(valueBits), y, width: size(all - valueBits), height: 13, fill: "url(#hatch)"}),
        s("text", {class: "soft", x: left + size(all) + 6, y: y + 11}, `${si(all)}bit`),
      );
    });
  });
  plot.replaceChildren(picture);
  picture.querySelectorAll(".name").forEach(name => fit(name, width));
}

// rows: {label, style, clients: [[client, agreement, length, why]]}; those that stand apart are named
function pulls(plot, rows, alt) {
  const width = Math.max(280, plot.clientWidth || 720),
    height = 360,
    all = rows.flatMap(row => row.clients);
  const picture = s("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": alt});
  const X = scale([], false, 56, width - 14, 0, [-1, 1]),
    Y = scale([...all.map(each => each[2]), 0.5, 2], true, height - 44, 14, 0.05);
  for (const v of ticks(Y.low, Y.high, true, 6)) {
    picture.append(
      s("path", {class: "grid", d: `M56,${Y(v)}H${width - 14}`}),
      s("text", {class: "soft", x: 48, y: Y(v) + 4, "text-anchor": "end"}, si(v)),
    );
  }
  for (const v of [-1, -0.5, 0, 0.5, 1])
    picture.append(s("text", {class: "soft", x: X(v), y: height - 26, "text-anchor": "middle"}, String(v)));
  picture.append(
    s("path", {class: "axis", d: `M56,${height - 44}H${width - 14}M${X(0)},14V${height - 44}`}),
    s("text", {x: width / 2, y: height - 8, "text-anchor": "middle"}, "agreement with the others, cosine"),
    s(
      "text",
      {transform: `translate(13,${height / 2}) rotate(-90)`, "text-anchor": "middle"},
      "length, in medians, log scale",
    ),
  );
  for (const {label, style, clients} of rows) {
    for (const [client, agreement, length, why] of clients) {
      const dot = mark(style, X(agreement), Y(length));
      dot.append(s("title", {}, `${label}, client ${client}${why ? `: ${why}` : ""}`));
      picture.append(dot);
      if (why) picture.append(s("text", {class: "name", x: X(agreement) + 7, y: Y(length) + 4}, String(client)));
    }
  }
  plot.replaceChildren(picture);
}

function stalenessBars(plot, rows, alt) {
  const width = Math.max(280, plot.clientWidth || 720),
    left = 46,
    line = 110;
  const bins = Math.max(...rows.map(row => row.bars.length * row.width)),
    room = width - left - 8;
  const picture = s("svg", {viewBox: `0 0 ${width} ${rows.length * line + 24}`, role: "img", "aria-label": alt});
  rows.forEach((row, n) => {
    const floor = (n + 1) * line - 22,
      most = Math.max(...row.bars),
      tall = line - 46,
      each = (room * row.width) / bins;
    picture.append(
      s(
        "text",
        {class: "name", x: left, y: floor - tall - 8},
        `${row.label}: ${row.mean.toFixed(2)} on average, ${row.worst} at most`,
      ),
      s("path", {class: "axis", d: `M${left},${floor}H${width - 8}`}),
      s(
        "text",
        {class: "soft", x: left - 8, y: floor - tall + 4, "text-anchor": "end"},
        `${Math.round((100 * most) / row.replies)} %`,
      ),
    );
    const bar = count => count && Math.max(1.5, (tall * count) / most); // one reply stays visible beside thousands
    row.bars.forEach((count, i) =>
      picture.append(
        s(
          "rect",
          {
            x: left + i * each + each * 0.1,
            width: each * 0.8,
            y: floor - bar(count),
            height: bar(count),
            fill: colour(row.style),
          },
          s(
            "title",
            {},
            `${row.width > 1 ? `${i * row.width} to ${(i + 1) * row.width - 1}` : i} steps late: ${count} replies`,
          ),
        ),
      ),
    );
    for (const v of ticks(0, bins - 1 || 1, false, 8).filter(Number.isInteger)) {
      picture.append(
        s(
          "text",
          {class: "soft", x: left + ((v + 0.5) * room) / bins, y: floor + 15, "text-anchor": "middle"},
          String(v),
        ),
      );
    }
  });
  picture.append(
    s(
      "text",
      {x: left + room / 2, y: rows.length * line + 16, "text-anchor": "middle"},
      "server steps since the client's download",
    ),
  );
  plot.replaceChildren(picture);
  picture.querySelectorAll(".name").forEach(name => fit(name, room));
}

function classPicture(plot, counts, alt, names, labels) {
  const width = Math.max(280, plot.clientWidth || 720),
    left = 46,
    top = 62,
    classes = counts[0].length;
  const across = (width - left - 4) / counts.length,
    high = Math.max(3, Math.min(18, 320 / classes));
  const sizes = counts.map(row => row.reduce((a, b) => a + b, 0)),
    most = Math.max(1, ...counts.flat()),
    largest = Math.max(1, ...sizes);
  const shade = count => (0.08 + 0.92 * Math.sqrt(count / most)).toFixed(3);
  const height = top + classes * high + 62;
  const picture = s("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": alt});
  picture.append(
    s("text", {class: "soft", x: left - 8, y: 14, "text-anchor": "end"}, String(largest)),
    s("path", {class: "axis", d: `M${left},${top - 6}H${width - 4}`}),
  );
  counts.forEach((row, i) => {
    const tall = ((top - 14) * sizes[i]) / largest;
    picture.append(
      s(
        "rect",
        {x: left + i * across + across * 0.1, width: across * 0.8, y: top - 6 - tall, height: tall, class: "bar"},
        s("title", {}, `client ${names[i]}: ${sizes[i]} samples`),
      ),
    );
    row.forEach(
      (count, k) =>
        count &&
        picture.append(
          s(
            "rect",
            {
              class: "heat",
              x: left + i * across,
              y: top + k * high,
              width: Math.max(0.5, across - 0.6),
              height: high - 0.6,
              "fill-opacity": shade(count),
            },
            s("title", {}, `client ${names[i]}: ${count} of ${labels[k]}`),
          ),
        ),
    );
  });
  for (const v of ticks(0, classes - 1 || 1, false, high > 11 ? classes : 8).filter(
    v => Number.isInteger(v) && v < classes,
  )) {
    picture.append(
      s("text", {class: "soft", x: left - 8, y: top + (v + 0.5) * high + 4, "text-anchor": "end"}, String(v)),
    );
  }
  for (const v of ticks(0, counts.length - 1 || 1, false, 10).filter(v => Number.isInteger(v) && v < counts.length)) {
    picture.append(
      s(
        "text",
        {class: "soft", x: left + (v + 0.5) * across, y: top + classes * high + 15, "text-anchor": "middle"},
        String(v),
      ),
    );
  }
  picture.append(
    s("text", {x: left + (width - left) / 2, y: height - 28, "text-anchor": "middle"}, "client"),
    s("text", {transform: `translate(11,${top + (classes * high) / 2}) rotate(-90)`, "text-anchor": "middle"}, "class"),
  );
  [...new Set([1, Math.ceil(most / 4), most])].forEach((count, i) =>
    picture.append(
      s("rect", {class: "heat scale", x: left + 92 * i, y: height - 13, width: 13, height: 11, "fill-opacity": shade(count)}),
      s("text", {class: "soft", x: left + 92 * i + 18, y: height - 3}, i ? whole(count) : plural(count, "sample")),
    ),
  );
  plot.replaceChildren(picture);
}
