// A table of hits. Each has a button that queries by it; arrow keys move between them, so that the table is one tab
// stop. All text is inserted as text, never as markup.
export default {
  render({ model, el }) {
    const table = element("table", { class: "tk-hits" });
    el.append(table);
    let active = 0;

    const ask = (position) => model.send({ kind: "ask", position, fields: unconfirmed(el) });
    const buttons = () => [...table.querySelectorAll("button")];

    const activate = (position, focus) => {
      const all = buttons();
      if (!all.length) return;
      active = Math.max(0, Math.min(all.length - 1, position));
      all.forEach((button, number) => button.setAttribute("tabindex", number === active ? "0" : "-1"));
      if (focus) all[active].focus();
    };

    const drawn = (row, position) => {
      const made = element("tr", { "data-position": position });
      made.append(element("td", {}, row.rank));
      const name = element("td");
      name.append(element("button", { type: "button", title: "Query from this hit", "aria-label": `Query from ${row.id}` }, row.id));
      if (row.more) name.append(element("div", { class: "tk-more", title: row.more }, row.more));
      const score = element("td", { class: "tk-score" });
      const bar = element("span", { class: "tk-length", "aria-hidden": "true" });
      bar.append(element("i"));
      bar.firstChild.style.width = `${row.share * 100}%`;
      score.append(element("span", {}, row.score), bar);
      made.append(name, score);
      if (model.get("moves")) made.append(element("td", {}, row.moved));
      return made;
    };

    const name = () => {
      table.caption.textContent = model.get("caption") + model.get("remark");
    };

    const draw = () => {
      const inside = table.contains(document.activeElement);
      const head = element("tr");
      for (const text of ["Rank", "Id", "Score", ...(model.get("moves") ? ["Moved"] : [])]) {
        head.append(element("th", { scope: "col" }, text));
      }
      const [thead, tbody] = [element("thead"), element("tbody")];
      thead.append(head);
      tbody.append(...model.get("rows").map(drawn));
      table.replaceChildren(element("caption"), thead, tbody);
      name();
      activate(0, inside);
    };

    table.addEventListener("click", (event) => {
      const row = event.target.closest("[data-position]");
      const selection = getSelection(); // a click that ends a selection of text is not a press
      if (!row || (event.detail && !selection.isCollapsed && table.contains(selection.anchorNode))) return;
      activate(Number(row.dataset.position), true);
      ask(active);
    });
    table.addEventListener("keydown", (event) => {
      const moves = { ArrowDown: active + 1, ArrowUp: active - 1, Home: 0, End: buttons().length - 1 };
      if (!(event.key in moves) || event.target.tagName !== "BUTTON") return;
      activate(moves[event.key], true);
      event.preventDefault();
    });
    model.on("change:version", draw);
    model.on("change:remark", name);
    draw();
    return () => {
      model.off("change:version", draw);
      model.off("change:remark", name);
    };
  },
};
