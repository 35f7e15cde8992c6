// The filter of vectors by their metadata.

import { filterEditor } from "./conditions.js";
import { formPanel } from "./form.js";
import { element } from "./kit.js";

export default {
  render: ({ model, el }) =>
    formPanel(model, el, ({ fields }) => {
      const editor = filterEditor(model, fields);
      const count = element("div", { class: "tk-count", role: "status" });
      return {
        head: [count],
        parts: editor.parts,
        handlers: {
          "change:conditions": editor.show,
          "change:matches": () => {
            count.textContent = model.get("matches");
          },
        },
      };
    }),
};
