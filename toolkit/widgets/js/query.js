// A similarity query: one of several sources, options, and the hits, perhaps next to a pinned result.
import { filterEditor } from "./conditions.js";
import { formPanel } from "./form.js";
import { button, element } from "./kit.js";

const NAMES = { text: "By text", vector: "By vector", stored: "By stored id", row: "By row" };

/** The way to show: the one of the query, or the one that the person looked at.
 * @param {string[]} ways
 * @param {string} way the way that the query comes from; empty without a query
 * @param {string} looked the way that was chosen in the page */
export const wayShown = (ways, way, looked) => [way, looked].find((name) => ways.includes(name)) ?? ways[0];

/** A table of hits. Each has a button that queries by it; arrow keys move between them, so that the table is one tab
 * stop. */
const hitTable = (name, { rows, caption, moves }, remark, ask) => {
  const head = ["Rank", "Id", "Score", ...(moves ? ["Moved"] : [])];
  const cells = (row) => {
    const id = element("td", {});
    id.append(
      element(
        "button",
        {
          type: "button",
          title: "Query from this hit",
          "aria-label": `Query from ${row.id}`,
          tabindex: "-1",
        },
        row.id,
      ),
    );
    if (row.more) id.append(element("div", { class: "tk-more", title: row.more }, row.more));
    const bar = element("i");
    bar.style.width = `${row.share * 100}%`;
    const score = element(
      "td",
      { class: "tk-score" },
      element("span", {}, row.score),
      element("span", { class: "tk-length", "aria-hidden": "true" }, bar),
    );
    return [element("td", {}, row.rank), id, score, ...(moves ? [element("td", {}, row.moved)] : [])];
  };
  const table = element(
    "table",
    { class: "tk-hits", "data-table": name },
    element("caption", {}, caption + remark),
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows.map((row, at) => element("tr", { "data-at": at }, ...cells(row)))),
  );
  const buttons = [...table.querySelectorAll("button")];
  let active = 0;
  const activate = (at) => {
    if (!buttons.length) return;
    buttons[active].setAttribute("tabindex", "-1");
    active = Math.max(0, Math.min(buttons.length - 1, at));
    buttons[active].setAttribute("tabindex", "0");
  };
  activate(0);
  table.addEventListener("click", (event) => {
    const row = event.target.closest("[data-at]");
    const selection = getSelection(); // a click that ends a selection of text is not a press
    if (!row || (event.detail && !selection.isCollapsed && table.contains(selection.anchorNode))) return;
    activate(Number(row.dataset.at));
    buttons[active].focus();
    ask(name, active);
  });
  table.addEventListener("keydown", (event) => {
    const moves = { ArrowDown: active + 1, ArrowUp: active - 1, Home: 0, End: buttons.length - 1 };
    if (!(event.key in moves) || event.target.tagName !== "BUTTON") return;
    activate(moves[event.key]);
    buttons[active].focus();
    event.preventDefault();
  });
  return {
    table,
    focus: () => buttons[0]?.focus(),
  };
};

export default {
  render: ({ model, el }) =>
    formPanel(model, el, ({ fields, send }) => {
      let looked = "";
      const source = element("div", { class: "tk-note tk-source-note" });
      const ways = model.get("ways");
      const choices = ways.map((name) =>
        button(NAMES[name], () => {
          looked = name;
          showWay(name);
          el.querySelector(`[data-way="${name}"] input`)?.focus();
        }),
      );
      const places = ways.map((name) =>
        element("div", { class: "tk-way", "data-way": name }, fields.part(name)),
      );
      const showWay = (shown) => {
        for (const [at, name] of ways.entries()) {
          choices[at].setAttribute("aria-pressed", String(name === shown));
          places[at].hidden = name !== shown;
        }
      };
      const marks = () => {
        const form = model.get("form");
        for (const [at, name] of ways.entries())
          choices[at].textContent = `${NAMES[name]}${form[name].problem ? " ⚠" : ""}`;
      };
      const results = element("div", { class: "tk-results" });
      const ask = (table, position) => {
        fields.commit();
        send({ kind: "ask", table, position });
      };
      const showHits = () => {
        const { tables = {}, summary = "", charts = [] } = model.get("hits");
        const inside = results.querySelector("table:focus-within")?.dataset.table;
        if (!Object.keys(tables).length) {
          results.replaceChildren(
            element(
              "div",
              { class: "tk-empty" },
              "No hits yet: fill one of the fields above, then press Ask.",
            ),
          );
          return;
        }
        const drawn = Object.entries(tables).map(([name, state]) =>
          hitTable(name, state, name === "now" ? model.get("hits_remark") : "", ask),
        );
        const head = element("div", { class: "tk-summary" });
        head.innerHTML = summary;
        const pictures = charts.map((chart) => {
          const place = element("div", { class: "tk-chart" });
          place.innerHTML = chart;
          return place;
        });
        const side = element(
          "div",
          { class: "tk-side-by-side" },
          ...drawn.map(({ table }) => table),
          ...pictures,
        );
        results.replaceChildren(...(summary ? [head] : []), side);
        if (inside) drawn.at(inside === "pinned" ? 0 : -1).focus();
      };
      const editor = filterEditor(model, fields);
      const [text, ...rows] = editor.parts;
      const options = [
        "top_k",
        "namespace",
        "query_mode",
        "fusion_algorithm",
        "weighting_strategy",
        "included",
      ];
      return {
        parts: [
          element(
            "div",
            { class: "tk-sources" },
            element(
              "div",
              { class: "tk-seg", role: "group", "aria-label": "Search by one of these" },
              ...choices,
            ),
            ...places,
            source,
          ),
          element("div", { class: "tk-fields" }, ...options.map(fields.part)),
          text,
          element("details", { class: "tk-folded" }, element("summary", {}, "Filter as rows"), ...rows),
        ],
        after: [results],
        handlers: {
          "change:way": () => showWay(wayShown(ways, model.get("way"), looked)),
          "change:source_note": () => {
            source.innerHTML = model.get("source_note");
          },
          "change:conditions": editor.show,
          "change:hits": showHits,
          "change:hits_remark": () => {
            const caption = results.querySelector('[data-table="now"] caption');
            if (caption)
              caption.textContent = model.get("hits").tables.now.caption + model.get("hits_remark");
          },
          // instead of the handler of the form: it also marks the ways that have a mistake
          "change:form": () => {
            fields.show();
            fields.attached();
            marks();
          },
        },
      };
    }),
};
