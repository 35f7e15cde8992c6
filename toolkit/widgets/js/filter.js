// The filter of failures: times on a histogram and as text, and lists of the values in use.

import { formPanel } from "./form.js";
import { brush, button, element } from "./kit.js";

export default {
  render: ({ model, el }) =>
    formPanel(model, el, ({ fields, send }) => {
      const trend = brush((ends) => send({ kind: "range", ends }));
      const count = element("div", { class: "tk-count", role: "status" });
      const presets = element("div", { class: "tk-seg tk-presets", role: "group", "aria-label": "Period" });
      for (const name of model.get("presets")) {
        const choose = () => {
          fields.commit();
          send({ kind: "preset", name });
        };
        presets.append(button(name, choose));
      }
      const grid = (names) => element("div", { class: "tk-fields" }, ...names.map(fields.part));
      const form = model.get("form");
      const names = fields.names();
      const lists = names.filter((name) => form[name].kind === "ticks");
      const texts = names.filter((name) => form[name].kind === "text");
      const rows = element("div", {
        class: "tk-table tk-result",
        role: "group",
        "aria-label": "First rows",
        tabindex: "0",
      });
      return {
        head: [presets, count],
        parts: [trend.el, grid(texts), grid(lists)],
        after: [rows],
        handlers: {
          "change:trend": () => trend.show(model.get("trend")),
          "change:matches": () => {
            count.textContent = model.get("matches");
          },
          "change:first_rows": () => {
            rows.innerHTML = model.get("first_rows");
            rows.hidden = !rows.innerHTML;
          },
        },
      };
    }),
};
