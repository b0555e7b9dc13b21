// The page is a flat list of blocks (headings, tables, figures), each made from the content.
// Text is always inserted as text nodes, so no label can become markup.

const live = document.documentElement.dataset.live === "yes";
const OURS = {accuracy: 1, loss: 1, train_loss: 1, grad_norm: 1}; // our scores; all others are the user's own
const figures = new Map(); // id -> {spec, choice, element}; survives new content
let content = JSON.parse(document.getElementById("content").textContent);

/* ---------- a figure: controls, legend, plot, caption, export ---------- */

// spec: {id, caption, draw(plot, choice), rows(choice), title?, choice?, selects?, switches?, legend?}
function figure(spec) {
  return {
    id: spec.id,
    mark: JSON.stringify([spec.mark, spec.caption]),
    make() {
      let own = figures.get(spec.id);
      if (!own) {
        own = {
          choice: {hidden: new Set(), ...spec.choice},
          element: h(
            "figure",
            {id: spec.id},
            h("h3"),
            h("div", {class: "controls"}),
            h("div", {class: "legend", role: "group", "aria-label": "Show or hide"}),
            h("div", {class: "plot"}),
            h("figcaption"),
            h(
              "div",
              {class: "export"},
              "Save as",
              ["SVG", "PNG", "CSV"].map(kind => h("button", {type: "button", onclick: () => save(own, kind)}, kind)),
            ),
          ),
        };
        figures.set(spec.id, own);
      }
      own.spec = spec;
      const [title, controls, legend, , caption] = own.element.children;
      title.textContent = spec.title ?? "";
      refill(controls, JSON.stringify([spec.selects, spec.switches]), () => [
        ...(spec.selects ?? []).map(([key, label, options]) =>
          h(
            "label",
            {},
            label + " ",
            h(
              "select",
              {id: `${spec.id}-${key}`, onchange: event => choose(own, key, event.target.value)},
              options.map(([value, text]) =>
                h("option", {value, selected: own.choice[key] === value ? "" : null}, text),
              ),
            ),
          ),
        ),
        ...(spec.switches ?? []).map(([key, label]) =>
          h(
            "button",
            {
              type: "button",
              class: "switch",
              id: `${spec.id}-${key}`,
              "aria-pressed": String(!!own.choice[key]),
              onclick: event => {
                choose(own, key, !own.choice[key]);
                event.target.setAttribute("aria-pressed", String(own.choice[key]));
              },
            },
            label,
          ),
        ),
      ]);
      refill(legend, JSON.stringify(spec.legend), () =>
        (spec.legend ?? []).map(({label, name, style}) =>
          h(
            "button",
            {
              type: "button",
              "aria-pressed": String(!own.choice.hidden.has(label)),
              onclick: event => {
                const hide = !own.choice.hidden.has(label);
                own.choice.hidden[hide ? "add" : "delete"](label);
                event.currentTarget.setAttribute("aria-pressed", String(!hide));
                redraw(own);
              },
            },
            swatch(style),
            name ?? label,
          ),
        ),
      );
      caption.replaceChildren(h("b", {}, `Figure ${spec.number}. `), ...spec.caption);
      return own.element;
    },
  };
}
function refill(element, mark, make) {
  // only if it changed, to keep the focus and open lists
  if (element.dataset.mark === mark) return;
  element.dataset.mark = mark;
  element.replaceChildren(...make());
}
const redraw = own => own.spec.draw(own.element.querySelector(".plot"), own.choice);
function choose(own, key, value) {
  own.choice[key] = value;
  redraw(own);
}

function save(own, kind) {
  const name = own.spec.id;
  if (kind === "CSV") {
    const cell = value =>
      /[",\n]/.test(value ?? "") ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? "");
    return download(
      new Blob(
        [
          own.spec
            .rows(own.choice)
            .map(row => row.map(cell).join(","))
            .join("\n") + "\n",
        ],
        {type: "text/csv"},
      ),
      `${name}.csv`,
    );
  }
  const {text, width, height} = standalone(own.element.querySelector(".plot svg"));
  const blob = new Blob([text], {type: "image/svg+xml"});
  if (kind === "SVG") return download(blob, `${name}.svg`);
  const image = new Image(),
    address = URL.createObjectURL(blob);
  image.onload = () => {
    const canvas = h("canvas", {width: 3 * width, height: 3 * height});
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(address);
    canvas.toBlob(png => download(png, `${name}.png`));
  };
  image.src = address;
}
function standalone(picture) {
  // with all colours and fonts inlined, on white, also in dark mode
  const root = document.documentElement,
    [, , width, height] = picture.getAttribute("viewBox").split(" ").map(Number);
  root.dataset.theme = "light";
  const copy = picture.cloneNode(true),
    inside = copy.querySelectorAll("*");
  picture.querySelectorAll("*").forEach((original, i) => {
    const look = getComputedStyle(original);
    for (const name of ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity"])
      inside[i].setAttribute(name, look.getPropertyValue(name).replaceAll('"', ""));
    inside[i].removeAttribute("style");
  });
  delete root.dataset.theme;
  copy.querySelectorAll(".cursor:not(.theory)").forEach(line => line.remove());
  for (const [key, value] of Object.entries({
    xmlns: SVG,
    width,
    height,
    "font-family": "Helvetica, Arial, sans-serif",
    "font-size": 12,
  }))
    copy.setAttribute(key, value);
  copy.prepend(s("rect", {width, height, fill: "#ffffff"}));
  return {text: new XMLSerializer().serializeToString(copy), width, height};
}
function download(blob, name) {
  const link = h("a", {href: URL.createObjectURL(blob), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/* ---------- blocks ---------- */

function workload(w, number) {
  const id = w.id,
    blocks = [heading(`${id}-heading`, 2, capital(w.title))];
  const measures = Object.keys(w.measures),
    [first] = measures;
  if (w.methods.length) {
    blocks.push(
      table(
        `${id}-overview`,
        "Mean \u00b1 standard deviation over the seeds that finished; traffic is one training of all clients together, the opening included.",
        [
          "Method",
          ...measures.map(m => "#" + capital(w.measures[m])),
          "Tuned",
          "#Seeds",
          "State",
          "#Rounds",
          "#Bits up",
        ],
        w.methods.map(method => {
          const bits = w.traffic.find(row => row.label === method.label);
          return [
            {...named(method.label), style: method.style},
            ...measures.map(m => spread(method.final[m])),
            method.tuning_free ? "nothing" : method.searched.join(", ") || "by hand",
            method.seeds,
            method.state,
            roundsOf(method.runs),
            bits ? si(bits.bits_up) : "\u2013",
          ];
        }),
        "Scores at the end",
      ),
    );
  }
  if (first && w.methods.some(method => Object.keys(method.y).length)) {
    const drawn = choice =>
      w.methods
        .filter(method => method.y[choice.y] && method.x[choice.x] && !choice.hidden.has(method.label))
        .map(method => ({
          label: stated(method),
          style: method.style,
          x: method.x[choice.x],
          ...method.y[choice.y],
          seeds: method.seeds_at,
          of: method.seeds,
          diverged: method.state.includes("diverged"),
        }));
    const ended = method => (method.final[first] ? `${stated(method)} ${spread(method.final[first])}` : `${stated(method)} no score`);
    blocks.push(
      figure({
        id: `${id}-curves`,
        title: "Scores during training",
        number: number(),
        mark: w.methods,
        choice: {x: "round", y: first, xlog: false, ylog: false},
        selects: [
          ["y", "Show", Object.entries(w.measures)],
          ["x", "against", w.axes.map(a => [a, content.axes[a]])],
        ],
        switches: [
          ["xlog", "log x"],
          ["ylog", "log y"],
        ],
        legend: w.methods.map(method => ({label: method.label, name: stated(method), style: method.style})),
        caption: [
          "Lines are means over the seeds, bands reach from the lowest seed to the highest. A thin line means that not all seeds have reached this point; a cross marks a method with a diverged run. Point, tap, or use the arrow keys to read values.",
        ],
        draw: (plot, choice) =>
          lines(plot, {
            series: drawn(choice),
            xlabel: content.axes[choice.x],
            ylabel: w.measures[choice.y],
            xlog: choice.xlog,
            ylog: choice.ylog,
            alt: `${w.measures[choice.y]} against ${content.axes[choice.x]}. At the end: ${w.methods.map(ended).join("; ")}`,
          }),
        rows: choice => [
          ["method", choice.x, `${choice.y} mean`, "lowest", "highest", "seeds"],
          ...drawn(choice).flatMap(a => a.x.map((x, i) => [a.label, x, a.mean[i], a.low[i], a.high[i], a.seeds[i]])),
        ],
      }),
    );
  }
  for (const sweep of w.sensitivity) {
    const shown = choice => sweep.by[choice.y];
    const drawn = choice =>
      shown(choice)
        .lines.filter(l => !choice.hidden.has(l.label))
        .map(l => ({
          label: l.label,
          style: l.style,
          crosses: l.points.filter(p => p.diverged).map(p => p.x),
          theory: l.theory,
          ...Object.fromEntries(["x", "mean", "low", "high", "seeds"].map(key => [key, l.points.map(p => p[key])])),
          of: 0,
        }));
    const level = choice => shown(choice).level.filter(l => !choice.hidden.has(l.label));
    const right = choice => choice.y === "accuracy";
    blocks.push(
      figure({
        id: `${id}-sensitivity-${sweep.id}`,
        title: `Sensitivity to ${sweep.title}`,
        number: number(),
        mark: sweep,
        choice: {y: sweep.measure, xlog: true, ylog: false},
        selects: [["y", "Show", Object.keys(sweep.by).map(m => [m, w.measures[m]])]],
        switches: [
          ["xlog", "log x"],
          ["ylog", "log y"],
        ],
        legend: [...sweep.lines, ...sweep.level].map(({label, style}) => ({label, style})),
        caption: [
          `The last score against ${sweep.key}; marks are values that were tried, bands reach from the lowest seed to the highest. A cross above the axis marks values at which a run diverged` +
            (sweep.measure === "accuracy" ? ", which counts as accuracy 0." : ".") +
            widths(sweep) +
            (sweep.level.length ? " Horizontal lines are methods with nothing to tune, in the same setting." : "") +
            (sweep.lines.some(l => l.theory)
              ? " A dotted vertical line marks the step size from the method's formula."
              : ""),
        ],
        draw: (plot, choice) =>
          lines(plot, {
            ...choice,
            series: drawn(choice),
            level: level(choice),
            span: right(choice) ? [0, 1] : [], // a truncated scale would exaggerate differences
            guessing: right(choice) ? sweep.chance : 0,
            xlabel: sweep.key,
            ylabel: w.measures[choice.y],
            alt: `${w.measures[choice.y]} against ${sweep.key}. ${shown(choice)
              .lines.map(l => `${l.label}: ${l.points.map(p => `${plain(p.mean)} at ${plain(p.x)}`).join(", ")}`)
              .join("; ")}`,
          }),
        rows: choice => [
          ["method", sweep.key, `${choice.y} mean`, "lowest", "highest", "seeds", "diverged"],
          ...shown(choice).lines.flatMap(l =>
            l.points.map(p => [l.label, p.x, p.mean, p.low, p.high, p.seeds, p.diverged]),
          ),
          ...shown(choice).level.map(l => [l.label, "", l.value, "", "", "", ""]),
        ],
      }),
    );
  }
  if (w.bill.length) {
    blocks.push(
      table(
        `${id}-bill`,
        "Cost of the search for step sizes, all clients together, and of one training with the values found.",
        [
          "Method",
          "#Trials",
          "#Search: rounds",
          "#samples",
          "#bits up",
          "#bits down",
          "Found",
          "#One training: rounds",
          "#samples",
          "#bits up",
          "#bits down",
        ],
        w.bill.map(({label, search, found, training, tuning_free}) => [
          named(label),
          ...(search
            ? [search.trials, whole(search.rounds), si(search.samples), si(search.bits_up), si(search.bits_down)]
            : Array(5).fill(null)),
          found.map(values).join("; ") ||
            (tuning_free ? "nothing to tune" : search ? "trials only" : "search not recorded"),
          ...(training && "rounds" in training
            ? [whole(training.rounds), si(training.samples), si(training.bits_up), si(training.bits_down)]
            : Array(4).fill(null)),
        ]),
        "The tuning bill",
      ),
    );
  }
  if (w.traffic.length) {
    const models = (bits, row) => (row.model_bits ? whole(bits / row.model_bits) : "\u2013");
    blocks.push(
      figure({
        id: `${id}-traffic`,
        title: "Traffic",
        number: number(),
        mark: w.traffic,
        caption: [
          "Bits of one training, all clients together, the opening included. Filled: values only, as some papers count; hatched: their positions.",
        ],
        draw: plot =>
          trafficBars(
            plot,
            w.traffic,
            `Traffic by direction. ${w.traffic.map(row => `${row.label}: ${si(row.bits_up)} bit up, ${si(row.bits_down)} bit down`).join("; ")}`,
          ),
        rows: () => [
          ["method", "bits up", "of which values", "bits down", "of which values"],
          ...w.traffic.map(r => [r.label, r.bits_up, r.value_bits_up, r.bits_down, r.value_bits_down]),
        ],
      }),
      table(
        `${id}-traffic-table`,
        "The same in exact bits and in models of 32 bits per parameter, and how often a client uploaded.",
        [
          "Method",
          "#Bits up",
          "#Values only",
          "#Models up",
          "#Bits down",
          "#Values only",
          "#Models down",
          "#Uploads per client",
        ],
        w.traffic.map(r => [
          named(r.label),
          whole(r.bits_up),
          whole(r.value_bits_up),
          models(r.bits_up, r),
          whole(r.bits_down),
          whole(r.value_bits_down),
          models(r.bits_down, r),
          `${r.uploads[0]} to ${r.uploads[1]}`,
        ]),
      ),
    );
  }
  if (w.staleness.length) {
    blocks.push(
      figure({
        id: `${id}-staleness`,
        title: "Staleness",
        number: number(),
        mark: w.staleness,
        caption: [
          "Share of replies by the number of server steps since the client's download, all seeds together.",
        ],
        draw: plot =>
          stalenessBars(
            plot,
            w.staleness,
            `Staleness. ${w.staleness.map(row => `${row.label}: ${row.mean.toFixed(2)} on average, ${row.worst} at most`).join("; ")}`,
          ),
        rows: () => [
          ["method", "staleness from", "to", "replies"],
          ...w.staleness.flatMap(row =>
            row.bars.map((count, i) => [row.label, i * row.width, (i + 1) * row.width - 1, count]),
          ),
        ],
      }),
    );
  }
  if (w.clients.length) {
    blocks.push(
      figure({
        id: `${id}-clients`,
        title: "Who pulls where",
        number: number(),
        mark: w.clients,
        caption: [
          "Every client of the first run of each method: the mean cosine of what it has sent with what the others have, and its length. Right of 0 it agrees. Those that stand apart have their number.",
        ],
        draw: plot => pulls(plot, w.clients, `Agreement and length by client: ${plural(w.clients.length, "method")}`),
        rows: () => [
          ["method", "client", "agreement", "length", "stands apart"],
          ...w.clients.flatMap(row => row.clients.map(each => [row.label, ...each])),
        ],
      }),
    );
  }
  if (w.absences.length) {
    blocks.push(
      table(
        `${id}-absences`,
        "Refused and missing replies, all seeds together.",
        ["Method", "Reason", "#Replies"],
        w.absences.map(row => [named(row.label), row.reason, whole(row.count)]),
        "Replies that did not count",
      ),
    );
  }
  if (w.picture.counts) {
    const {counts, clients, seed, names, classes} = w.picture,
      more = clients > counts.length ? `, the first ${counts.length} of ${clients}` : "";
    blocks.push(
      figure({
        id: `${id}-classes`,
        title: "Classes by client",
        number: number(),
        mark: w.picture,
        caption: [
          `Samples by client and class${more}${seed === null ? "" : `, partitioned by seed ${seed}`}. Above: samples of each client. Shades grow with the square root of the count.`,
        ],
        draw: plot =>
          classPicture(
            plot,
            counts,
            `Samples by client and class: ${counts.length} clients, ${counts[0].length} classes`,
            names,
            classes,
          ),
        rows: () => [["client", ...classes], ...counts.map((row, i) => [names[i], ...row])],
      }),
    );
  }
  const steps = w.methods.flatMap(method =>
    method.steps.map(([name, value, origin]) => [named(method.label), name, plain(value), {text: origin, kind: "words"}]),
  );
  if (steps.length)
    blocks.push(
      table(
        `${id}-steps`,
        "Every number a method used, and where it came from.",
        ["Method", "Name", "#Value", "From"],
        steps,
        "Step sizes",
      ),
    );
  return blocks;
}

function roundsOf(runs) {
  const done = runs.map(run => run.rounds),
    low = Math.min(...done),
    high = Math.max(...done),
    planned = Math.max(...runs.map(run => run.T ?? 0));
  return (low < high ? `${low} to ${high}` : `${low}`) + (low < planned ? ` of ${planned}` : "");
}

function widths({key, within, lines}) {
  const ranges = lines
    .filter(line => line.width)
    .map(({label, width: {decades, low, high, cut}}) => {
      const most = `${+low.toPrecision(3)} to ${+high.toPrecision(3)}${cut ? ", cut off by the values tried" : ""}`;
      return `${label} over ${decades.toFixed(2)} decades (${most})`;
    });
  return ranges.length ? ` Within ${within} of the best accuracy at any ${key}: ${ranges.join("; ")}.` : "";
}

function tail() {
  const {settings, privacy, versions, runs} = content,
    blocks = [heading("settings", 2, "Settings and runs")];
  if (settings.keys.length)
    blocks.push(
      table(
        "settings-own",
        "Settings in which the methods differ.",
        ["Method", ...settings.keys],
        settings.methods.map(([label, own]) => [named(label), ...own.map(breakable)]),
      ),
    );
  if (settings.shared.length)
    blocks.push(
      table(
        "settings-shared",
        "Settings that all methods share.",
        ["Setting", "Value"],
        settings.shared.map(([key, value]) => [key, breakable(value)]),
      ),
    );
  if (privacy.length)
    blocks.push(
      table(
        "privacy",
        "Differential privacy: what each private run promises, by itself, and what it does not.",
        ["Method", "What", "Promise"],
        privacy.map(([label, what, words], i) => [
          named(label === privacy[i - 1]?.[0] ? "" : label), // once for each method
          what,
          breakable(words),
        ]),
      ),
    );
  if (versions.length)
    blocks.push(
      table(
        "versions",
        "Versions, where the clients ran, and how gradients were computed.",
        ["What", "Used"],
        versions,
      ),
    );
  const held = runs.some(run => run.scored_on !== "test"),
    odd = runs.some(run => run.reason),
    own = [...new Set(runs.flatMap(run => Object.keys(run.scores)))].filter(m => !(m in OURS));
  blocks.push(
    table(
      "runs",
      "Every run file.",
      [
        "File",
        ...["Method", "Role", "#Seed", "State", "#Rounds", "#Accuracy", "#Loss"],
        ...own.map(measure => "#" + capital(measure)),
        ...(held ? ["Scored on"] : []),
        ...(odd ? ["Reason"] : []),
      ],
      runs.map(run => [
        named(run.file),
        run.method,
        run.role,
        run.seed,
        run.state,
        run.T ? `${run.rounds} of ${run.T}` : run.rounds,
        plain(run.accuracy),
        plain(run.loss),
        ...own.map(measure => plain(run.scores[measure])),
        ...(held ? [`${run.scored_on} samples`] : []),
        ...(odd ? [{text: run.reason, kind: "words"}] : []),
      ]),
    ),
  );
  return blocks;
}

function show() {
  // blocks that have not changed stay, so that a live page neither jumps nor loses choices
  document.getElementById("lead").textContent = content.lead;
  let count = 0;
  const number = () => ++count;
  const blocks = [
    ...(content.verdicts.length ? claims(content.verdicts) : []),
    ...content.workloads.flatMap(w => workload(w, number)),
    ...(content.runs.length ? tail() : []),
  ];
  const main = document.querySelector("main"),
    sections = []; // each from a heading to the next
  for (const block of blocks) {
    if (block.level === 2) sections.push({id: `${block.id}-section`, blocks: []});
    sections.at(-1).blocks.push(block);
  }
  keep(main, sections);
  sections.forEach((section, n) => {
    const parent = document.getElementById(section.id) ?? h("section", {id: section.id});
    if (!parent.isConnected) main.insertBefore(parent, main.children[n] ?? null);
    keep(parent, section.blocks);
    section.blocks.forEach((block, i) => {
      const old = document.getElementById(block.id);
      if (old?.dataset.mark === block.mark) return;
      const made = block.make();
      made.dataset.mark = block.mark;
      if (made !== old) old ? old.replaceWith(made) : parent.insertBefore(made, parent.children[i] ?? null);
      if (figures.has(block.id)) redraw(figures.get(block.id));
    });
  });
  pair();
}

function keep(parent, wanted) {
  // removes all other children
  const ids = new Set(wanted.map(each => each.id));
  for (const old of [...parent.children]) if (!ids.has(old.id)) old.remove();
}

function pair() {
  // on a wide screen, tables narrower than half of it are placed side by side, like figures
  for (const block of document.querySelectorAll("main .block")) {
    const inside = block.querySelector("table");
    inside.classList.add("natural");
    const half = inside.offsetWidth <= (block.parentElement.clientWidth - 48) / 2;
    inside.classList.remove("natural");
    block.classList.toggle("half", half);
  }
}

function say(kind, text) {
  // only if it changed, because screen readers read it out
  const status = document.getElementById("live");
  status.className = kind;
  if (status.textContent !== text) status.textContent = text;
}

function healthy(lines) {
  // of federations: their state, clients and what is wrong
  const list = document.getElementById("health");
  if (list.innerText === lines.join("\n")) return;
  list.hidden = !lines.length;
  list.replaceChildren(...lines.map(text => Object.assign(document.createElement("li"), { textContent: text })));
}

async function ask() {
  try {
    const answer = await fetch("/content.json");
    if (!answer.ok) throw new Error(await answer.text());
    content = await answer.json();
    show();
    healthy(content.health);
    say(
      "",
      content.runs.some(run => run.state === "running")
        ? "live, updated every two seconds"
        : content.runs.length
          ? "no run is in progress"
          : "waiting for runs, checked every two seconds",
    );
  } catch (error) {
    say("lost", `not up to date: ${error.message}`);
  }
  setTimeout(ask, 2000);
}

show();
let drawnWidth = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === drawnWidth) return;
  for (const own of figures.values()) own.element.isConnected && redraw(own);
  pair();
  drawnWidth = innerWidth;
});
if (live) {
  document.getElementById("live").hidden = false;
  ask();
}
