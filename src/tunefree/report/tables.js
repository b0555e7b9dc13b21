// Blocks of the page that are not figures: headings and tables.

const heading = (id, level, text) => ({id, level, mark: text, make: () => h(`h${level}`, {id}, text)});

// columns: names, a leading "#" marks numbers; cells: text, or {text, style, kind}
const table = (id, caption, columns, rows, title = null) => ({
  id,
  mark: JSON.stringify([caption, columns, rows, title]),
  make: () => framed(id, caption, grid(columns, rows, `${id}-caption`), title),
});

const named = text => ({text, kind: "named"}); // may be long and break anywhere
const breakable = value => ({text: value === "" ? null : value, kind: "value"});

const framed = (id, caption, inside, title = null) =>
  h(
    "div",
    {id, class: "block"},
    title && h("h3", {}, title),
    h("p", {class: "caption", id: `${id}-caption`}, caption),
    h("div", {class: "wide", tabindex: 0, role: "region", "aria-labelledby": `${id}-caption`}, inside),
  );

const grid = (columns, rows, caption = null) =>
  h(
    "table",
    {"aria-labelledby": caption},
    head(columns),
    h(
      "tbody",
      {},
      rows.map(cells => row(columns, cells)),
    ),
  );

const head = columns =>
  h(
    "thead",
    {},
    h(
      "tr",
      {},
      columns.map(name => h("th", {scope: "col", class: numeric(name) || null}, breaks(name.replace("#", "")))),
    ),
  );

const row = (columns, cells) =>
  h(
    "tr",
    {},
    cells.map((cell, i) => {
      const {text, style, kind} = cell !== null && typeof cell === "object" ? cell : {text: cell};
      const drawn = style !== undefined,
        look = [numeric(columns[i]), kind, drawn && "drawn"].filter(Boolean).join(" ");
      return h(
        i ? "td" : "th",
        {scope: i ? null : "row", class: look || null},
        drawn ? swatch(style) : "",
        text === null || text === undefined ? "\u2013" : String(text),
      );
    }),
  );

const numeric = column => (column[0] === "#" ? "number" : "");
// option.eta may break at its dot
const breaks = name => name.match(/[^._]+[._]?/g).flatMap(part => [part, h("wbr")]);
