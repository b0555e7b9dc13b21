// The claims of a reproduction: a short table, with the reasons below each claim.

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
          "The papers' claims, and whether each holds here at the size that was run.",
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
  // numbers that are parts are not repeated, nor is `why`, which only repeats the parts
  const shown = new Set(parts.map(part => part.what)),
    more = Object.entries(numbers ?? {}).filter(([name]) => !shown.has(name));
  const chosen = Object.entries(tuned ?? {});
  return [
    parts.length ? grid(["Part", "#Measured", "Must be", "Holds"], parts.map(partRow)) : h("p", {}, why || "No reason given."),
    more.length ? grid(["Number", "#Value"], more.map(([name, value]) => [named(name), shownNumber(value)])) : "",
    finals.length ? ends(finals) : "",
    chosen.length ? h("p", {}, `Tuned: ${chosen.map(([name, to]) => `${name} to ${to}`).join("; ")}.`) : "",
    reason ? h("p", {}, `Why it does not hold: ${reason}.`) : "",
    played ? h("p", {}, `At ${scale} size: ${played}.`) : "",
    h("p", {}, `Seeds: ${[].concat(seeds ?? []).join(", ") || "none"}. `, command ? h("code", {}, command) : ""),
  ];
}

const partRow = ({what, value, error, limit, side, holds}) => [
  named(what),
  value === null ? "no value" : shownNumber(value) + (error ? ` \u00b1 ${+error.toPrecision(2)}` : ""),
  `${side} ${shownNumber(limit)}`,
  HOLDS.get(holds) ?? {text: "open", kind: "open"},
];
const shownNumber = value => (typeof value === "number" ? plain(value) : String(value ?? "\u2013"));

function ends(finals) {
  // a row for each method, a column for each setting
  const places = [...new Set(finals.map(end => end.where))],
    methods = [...new Set(finals.map(end => end.method))];
  const score = end => (end.accuracy === null ? "no score" : `${end.accuracy.toFixed(3)} \u00b1 ${plain(end.spread)}`);
  const text = end => end && score(end) + (end.diverged ? `, ${end.diverged} diverged` : "");
  return grid(
    ["Accuracy at the end", ...places.map(place => `#${place}`)],
    methods.map(method => [
      named(method),
      ...places.map(place => text(finals.find(end => end.method === method && end.where === place)) ?? ""),
    ]),
  );
}

let opened = []; // unfolded for printing
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const each of opened) each.open = true;
});
addEventListener("afterprint", () => {
  for (const each of opened) each.open = false;
});
