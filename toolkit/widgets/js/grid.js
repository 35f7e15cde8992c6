// A table of many rows, of which only the visible ones are in the page. The kernel keeps the rows and their order;
// the page requests the rows that are scrolled to. All text is inserted as text, never as markup.
const SPARE = 12; // rows drawn above and below the visible ones

export default {
  render({ model, el }) {
    const id = uniqueId();
    const root = element("div", {
      class: "tk-grid", role: "grid", tabindex: "0", "aria-multiselectable": "true", "aria-label": "Failures",
    });
    const head = element("div", { role: "rowgroup", class: "tk-grid-head" });
    const body = element("div", { role: "rowgroup", class: "tk-grid-body" });
    root.append(head, body);
    el.append(root);

    let known = new Map(); // rows that the kernel has sent, by position
    let active = model.get("total") ? 0 : -1; // row with the keyboard focus; -1 before the first one
    let ROW = 28; // pixels; the style gives rows of a narrow table two lines
    let anchor = -1;
    let waiting = "";
    let order = model.get("order");

    const total = () => model.get("total");

    const drawHead = () => {
      const row = element("div", { role: "row", class: "tk-grid-row", "aria-rowindex": 1 });
      row.append(element("div", { role: "columnheader", class: "tk-cell" }, "✓"));
      row.firstChild.setAttribute("aria-label", "Selected");
      for (const { name, label, sortable } of model.get("columns")) {
        const cell = element("div", { role: "columnheader", class: `tk-cell tk-col-${name}` });
        if (sortable) {
          const sorted = model.get("sort_by") === name;
          const ascending = model.get("ascending");
          cell.setAttribute("aria-sort", sorted ? (ascending ? "ascending" : "descending") : "none");
          const sign = sorted ? (ascending ? " ▲" : " ▼") : "";
          const button = element("button", { type: "button", title: `Sort by ${label}`, "data-name": name }, label + sign);
          button.addEventListener("click", () => model.send({ kind: "sort", name }));
          cell.append(button);
        } else cell.textContent = label;
        row.append(cell);
      }
      const focused = head.contains(document.activeElement) && document.activeElement.dataset.name;
      head.replaceChildren(row);
      if (focused) head.querySelector(`[data-name="${focused}"]`)?.focus();
      root.setAttribute("aria-rowcount", total() + 1);
    };

    const seen = () => {
      const top = Math.max(0, Math.floor(root.scrollTop / ROW) - SPARE);
      const count = Math.ceil(root.clientHeight / ROW) + 2 * SPARE;
      return [top, Math.min(total(), top + count)];
    };

    const drawn = (position) => {
      const found = known.get(position);
      const row = element("div", {
        role: "row", id: `${id}-${position}`, class: "tk-grid-row", "aria-rowindex": position + 2, "data-position": position,
      });
      row.style.top = `${position * ROW}px`;
      row.setAttribute("aria-selected", found ? String(found.selected) : "false");
      if (position === (active < 0 ? model.get("shown") : active)) row.classList.add("tk-active");
      const mark = found?.selected ? "☑" : "☐";
      row.append(element("div", { role: "gridcell", class: "tk-cell tk-mark" }, found ? mark : ""));
      model.get("columns").forEach(({ name }, number) => {
        const text = found ? found.cells[number] : "…";
        row.append(element("div", { role: "gridcell", class: `tk-cell tk-col-${name}`, title: text }, text));
      });
      return row;
    };

    const draw = () => {
      ROW = parseFloat(getComputedStyle(body).getPropertyValue("--tk-row")) || 28;
      const [from, to] = seen();
      body.style.height = `${Math.max(total(), 1) * ROW}px`;
      const rows = [];
      let missing = false;
      for (let position = from; position < to; position += 1) {
        rows.push(drawn(position));
        missing ||= !known.has(position);
      }
      if (!total()) rows.push(element("div", { role: "row", class: "tk-none" }));
      if (!total()) rows[0].append(element("div", { role: "gridcell" }, "No failure is found."));
      body.replaceChildren(...rows);
      if (active >= from && active < to) root.setAttribute("aria-activedescendant", `${id}-${active}`);
      else root.removeAttribute("aria-activedescendant");
      const wanted = `${model.get("version")}:${from}:${to}`;
      if (missing && waiting !== wanted) {
        waiting = wanted;
        model.send({ kind: "rows", from, to });
      }
    };

    const take = ({ version, from, rows }) => {
      if (version !== model.get("version")) return; // the order was replaced meanwhile
      rows.forEach(([selected, ...cells], number) => known.set(from + number, { selected, cells }));
      waiting = "";
      draw();
    };

    const renewed = () => {
      known = new Map();
      waiting = "";
      if (order !== model.get("order")) {
        order = model.get("order");
        active = anchor = -1;
        root.scrollTop = 0;
      }
      drawHead();
      take(model.get("page"));
    };

    const activate = (position) => {
      if (!total()) return;
      active = Math.max(0, Math.min(total() - 1, position));
      const top = active * ROW;
      const height = root.clientHeight - head.offsetHeight;
      if (top < root.scrollTop) root.scrollTop = top;
      else if (top + ROW > root.scrollTop + height) root.scrollTop = top + ROW - height;
      draw();
      model.send({ kind: "active", order, position: active });
    };

    const select = (from, to, on) => {
      const [first, last] = [Math.min(from, to), Math.max(from, to)];
      for (let position = first; position <= last; position += 1) if (known.has(position)) known.get(position).selected = on;
      draw();
      model.send({ kind: "select", order, from: first, to: last + 1, on });
    };

    const toggle = (position) => {
      anchor = position;
      select(position, position, !known.get(position)?.selected);
    };

    body.addEventListener("click", (event) => {
      const row = event.target.closest("[data-position]");
      if (!row) return;
      const position = Number(row.dataset.position);
      if (event.shiftKey && anchor >= 0) select(anchor, position, true);
      else if (event.target.classList.contains("tk-mark") || event.ctrlKey || event.metaKey) toggle(position);
      activate(position);
    });

    root.addEventListener("keydown", (event) => {
      if (event.target !== root) return;
      const page = Math.max(1, Math.floor((root.clientHeight - head.offsetHeight) / ROW) - 1);
      const moves = {
        ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page,
        Home: 0, End: total() - 1,
      };
      if (event.key in moves) {
        activate(moves[event.key]);
        if (event.shiftKey && event.key.startsWith("Arrow")) select(active, active, true);
      } else if (event.key === " " && active >= 0) toggle(active);
      else if (event.key === "Enter" && !event.shiftKey && active >= 0) activate(active);
      else if (event.key === "a" && (event.ctrlKey || event.metaKey)) model.send({ kind: "all", order });
      else if (event.key === "c" && (event.ctrlKey || event.metaKey) && getSelection().isCollapsed) model.send({ kind: "copy" });
      else return;
      event.preventDefault();
    });

    let frame = 0;
    root.addEventListener("scroll", () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(draw);
    });
    const sized = new ResizeObserver(draw);
    sized.observe(root);
    const copy = async ({ text, status }) => {
      let done = true;
      try {
        await navigator.clipboard.writeText(text);
      } catch { // a page without HTTPS has no clipboard API: use the older command
        const focused = document.activeElement;
        const field = element("textarea", { "aria-hidden": "true", class: "tk-copied" }, text);
        root.append(field);
        field.select();
        done = document.execCommand("copy");
        field.remove();
        focused?.focus();
      }
      model.send({ kind: "copied", status, done });
    };
    const message = (content) => (content.kind === "rows" ? take(content) : copy(content));
    model.on("msg:custom", message);
    model.on("change:version", renewed);
    drawHead();
    take(model.get("page"));
    return () => {
      sized.disconnect();
      cancelAnimationFrame(frame);
      model.off("msg:custom", message);
      model.off("change:version", renewed);
    };
  },
};
