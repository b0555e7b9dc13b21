// The claims of a reproduction: a short table, and below each claim what decided it.

const VERDICTS = {holds: ["holds", "\u2713 "], "does not hold": ["fails", "\u2717 "]};
const HOLDS = new Map([
  [true, {text: "yes", kind: "holds"}],
  [false, {text: "no", kind: "fails"}],
]);

function claims(verdicts) {
  return [
    heading("claims", 2, "Claims"),
    {
      id: "claims-table",
      mark: JSON.stringify(verdicts),
      make: () =>
        framed(
          "claims-table",
          "What the papers claim, and whether it held here, at the size that was run.",
          h(
            "table",
            {class: "claims", "aria-labelledby": "claims-table-caption"},
            head(["Claim", "Sentence", "Verdict", "Scale"]),
            verdicts.map(claim),
          ),
        ),
    },
  ];
}

function claim(verdict) {
  const [kind, sign] = VERDICTS[verdict.verdict] ?? ["open", "? "];
  const cells = [
    verdict.claim,
    {text: verdict.sentence, kind: "sentence"},
    {text: sign + (verdict.verdict ?? "not decided"), kind},
    verdict.scale,
  ];
  return h(
    "tbody",
    {},
    row(["", "", "", ""], cells),
    h("tr", {}, h("td", {colspan: 4}, h("details", {}, h("summary", {}, counted(verdict)), reasons(verdict)))),
  );
}

function counted({parts = []}) {
  if (!parts.length) return "Why";
  const open = parts.filter(part => part.holds === null).length,
    held = parts.filter(part => part.holds).length;
  return `${held} of ${plural(parts.length, "part")} ${held === 1 ? "holds" : "hold"}${open ? `, ${open} open` : ""}`;
}

function reasons({parts = [], numbers, seeds, why, command, finals = [], tuned, scale, played, reason}) {
  // a number that is a part is not said twice, nor is the reason, which only repeats the parts
  const said = new Set(parts.map(part => part.what)),
    more = Object.entries(numbers ?? {}).filter(([name]) => !said.has(name));
  const chosen = Object.entries(tuned ?? {});
  return [
    parts.length ? grid(["Part", "#Found", "Must be", "Holds"], parts.map(partRow)) : h("p", {}, why || "No reason given."),
    more.length ? grid(["Number", "#Value"], more.map(([name, value]) => [named(name), shownNumber(value)])) : "",
    finals.length ? ends(finals) : "",
    chosen.length ? h("p", {}, `Tuned: ${chosen.map(([name, to]) => `${name} to ${to}`).join("; ")}.`) : "",
    reason ? h("p", {}, `The reason that it does not hold: ${reason}.`) : "",
    played ? h("p", {}, `At ${scale} size: ${played}.`) : "",
    h("p", {}, `Seeds: ${[].concat(seeds ?? []).join(", ") || "none"}. `, command ? h("code", {}, command) : ""),
  ];
}

const partRow = ({what, value, error, limit, side, holds}) => [
  named(what),
  value === null ? "nothing" : shownNumber(value) + (error ? ` \u00b1 ${+error.toPrecision(2)}` : ""),
  `${side} ${shownNumber(limit)}`,
  HOLDS.get(holds) ?? {text: "open", kind: "open"},
];
const shownNumber = value => (typeof value === "number" ? plain(value) : String(value ?? "\u2013"));

const methodOf = end => end.method ?? end.arm; // older verdicts have the latter

function ends(finals) {
  // a row for each method, a column for each setting
  const places = [...new Set(finals.map(end => end.where))],
    methods = [...new Set(finals.map(methodOf))];
  const score = end => (end.accuracy === null ? "no score" : `${end.accuracy.toFixed(3)} \u00b1 ${plain(end.spread)}`);
  const text = end => end && score(end) + (end.diverged ? `, ${end.diverged} diverged` : "");
  return grid(
    ["Accuracy at the end", ...places.map(place => `#${place}`)],
    methods.map(method => [
      named(method),
      ...places.map(place => text(finals.find(end => methodOf(end) === method && end.where === place)) ?? ""),
    ]),
  );
}

let opened = []; // for paper, on which nothing can be unfolded
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const each of opened) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of opened) each.open = false;
});
