// A metadata filter as text and as rows of conditions in groups. The kernel keeps both in step.
import { element } from "./kit.js";

/** The names of rows and groups in their order, which tells whether the arrangement has changed.
 * @param {{name: string, parts?: object[]}} part */
export const outline = ({ name, parts = [] }) => `${name}(${parts.map(outline).join(",")})`;

/** Put elements into a box in this order. Elements that stay in place are not moved, so they keep the focus. */
const arrange = (box, wanted) => {
  for (const [at, part] of wanted.entries())
    if (box.children[at] !== part) box.insertBefore(part, box.children[at] ?? null);
  while (box.children.length > wanted.length) box.lastElementChild.remove();
};

/** The editor of a filter. `fields` are those of the panel. */
export const filterEditor = (model, fields) => {
  const known = new Map(); // elements of rows and groups, by name
  const note = element("div", { class: "tk-filter-note" });
  const hidden = element("div", { class: "tk-note", role: "status" });
  const found = element("div", { class: "tk-found-fields" });
  const tree = element("div", { class: "tk-tree" });
  const made = {
    condition({ name }) {
      const line = element(
        "div",
        { class: "tk-condition" },
        ...["field", "operator", "value", "remove"].map((part) => fields.part(`${name}.${part}`)),
      );
      return element("div", { class: "tk-row" }, line, element("div"));
    },
    group({ name }) {
      const head = ["kind", "add", "nest", "remove"].map((part) => `${name}.${part}`).filter(fields.has);
      return element(
        "div",
        { class: "tk-group-of" },
        element("div", { class: "tk-buttons" }, ...head.map(fields.part)),
        element("div", { class: "tk-parts" }),
      );
    },
  };
  const drawn = (part) => {
    const { name, kind, parts = [] } = part;
    if (!known.has(name)) known.set(name, made[kind](part));
    const el = known.get(name);
    if (kind === "group") arrange(el.lastElementChild, parts.map(drawn));
    else if (el.lastElementChild.innerHTML !== part.note) el.lastElementChild.innerHTML = part.note;
    return el;
  };
  let before = "";
  return {
    parts: [
      element("div", { class: "tk-fields tk-wide" }, fields.part("filter"), note),
      element("div", { class: "tk-rows-of" }, hidden, tree),
      found,
    ],
    show() {
      const state = model.get("conditions");
      if (note.innerHTML !== state.note) note.innerHTML = state.note;
      hidden.textContent = state.hidden;
      hidden.hidden = !state.hidden;
      tree.hidden = Boolean(state.hidden);
      if (found.dataset.markup !== state.fields) {
        const open = found.querySelector("details")?.open;
        found.dataset.markup = state.fields;
        found.innerHTML = state.fields;
        if (open && found.querySelector("details")) found.querySelector("details").open = true;
      }
      arrange(tree, [drawn(state.tree)]);
      const now = outline(state.tree);
      if (now === before) return;
      before = now;
      for (const name of known.keys()) if (!new RegExp(`(^|[(,])${name}\\(`).test(now)) known.delete(name);
      fields.show();
      fields.attached();
    },
  };
};
