// The failure panel: groups by state, a trend, a table, what a group shares, and one failure in full.
import {
  beginPanel,
  brush,
  button,
  codeBox,
  copied,
  element,
  longList,
  placeAfter,
  smallBars,
  textField,
  wrapping,
} from "./kit.js";

const WORDS = {
  new: "New",
  "back again": "Back again",
  growing: "Growing",
  steady: "Steady",
  ended: "Ended",
};
const KINDS = { new: "new", "back again": "growing", growing: "growing" };

const chip = (state) =>
  element("span", { class: `tk-chip tk-chip-${state.replace(" ", "-")}` }, WORDS[state] ?? state);
const number = (count) => count.toLocaleString("en-US");

/** The groups to list: all, or those that the search and the range of times find, with their numbers.
 * @param {{id: string, count: number}[]} groups
 * @param {Record<string, number> | null} hits */
export const listed = (groups, hits) =>
  hits ? groups.filter(({ id }) => hits[id]).map((group) => ({ ...group, hits: hits[group.id] })) : groups;

/** The list of groups: arrow keys move, Enter opens, Space adds or removes, Escape shows all. */
const groupList = (model, send) => {
  let groups = [];
  const list = longList({
    label: "Groups",
    role: "listbox",
    height: () => 56,
    row(at) {
      const group = groups[at];
      const chosen = model.get("view").groups.includes(group.id);
      const row = element("div", {
        class: "tk-group",
        role: "option",
        "aria-selected": String(chosen),
        title: group.hint,
      });
      // without a choice, the group of the shown failure is the one at the side
      if (group.id === model.get("about").id) row.classList.add("tk-shown");
      const count =
        group.hits && group.hits !== group.count
          ? `${number(group.hits)} of ${number(group.count)}`
          : number(group.count);
      const where = [group.where, `last ${group.last.replace(" today", "")}`].filter(Boolean).join(" · ");
      row.append(
        chip(group.state),
        element(
          "div",
          { class: "tk-what" },
          element("div", { class: "tk-title" }, group.title),
          element("div", { class: "tk-sub" }, where),
        ),
        smallBars(
          group.bars,
          `${group.count} failures from ${group.first} to ${group.last}`,
          KINDS[group.state] ?? "other",
        ),
        element("b", { class: "tk-n" }, count),
      );
      return row;
    },
  });
  list.el.classList.add("tk-groups");
  const open = (at, several) => {
    list.activate(at);
    // the kernel adds to the groups that it knows, so that quick clicks do not depend on its answers
    const { id } = groups[at];
    send(several ? { kind: "toggle", group: id } : { kind: "groups", groups: [id] });
  };
  list.el.addEventListener("click", (event) => {
    const at = list.at(event);
    if (at >= 0) open(at, event.ctrlKey || event.metaKey);
  });
  list.el.addEventListener("keydown", (event) => {
    const place = placeAfter(event.key, list.active, groups.length, list.page);
    if (place !== null) list.activate(place);
    else if (event.key === "Enter" && !event.shiftKey && list.active >= 0) open(list.active, false);
    else if (event.key === " " && list.active >= 0) open(list.active, true);
    else if (event.key === "Escape") send({ kind: "groups", groups: [] });
    else return;
    event.preventDefault();
  });
  const show = () => {
    const { groups: all, waiting, failed, hits } = model.get("board");
    groups = listed(all, hits);
    list.resize(groups.length);
    list.draw();
    if (groups.length) return;
    let text = "No failures: nothing is in the queue, or the frame has no rows.";
    if (waiting) text = "Reading the failures to group them …";
    else if (failed)
      text = "The failures could not be grouped; the reason is below. “Failures” has the table.";
    else if (all.length) text = "No group has failures that match. Clear the search, or show all times.";
    const empty = element(
      "div",
      { class: `tk-empty${waiting ? " tk-waiting" : ""}`, role: "option", "aria-selected": "false" },
      text,
    );
    list.body.replaceChildren(empty);
  };
  return { ...list, show: () => list.steady(show) };
};

/** The table of failures. The kernel keeps the rows and their order; the page requests rows that are scrolled to. */
const failureTable = (model, send) => {
  let known = new Map(); // rows that the kernel has sent, by position
  let waiting = "";
  let order = -1;
  let anchor = -1;
  const state = () => model.get("table");
  const list = longList({
    label: "Failures",
    role: "grid",
    height: () => (list.el.clientWidth < 560 ? 48 : 28),
    row(at) {
      const found = known.get(at);
      const row = element("div", {
        role: "row",
        class: "tk-grid-row",
        "aria-rowindex": at + 2,
        "aria-selected": String(Boolean(found?.selected)),
      });
      if (list.active < 0 && at === state().shown) row.classList.add("tk-active");
      row.append(
        element(
          "div",
          { role: "gridcell", class: "tk-cell tk-mark" },
          found ? (found.selected ? "☑" : "☐") : "",
        ),
      );
      state().columns.forEach(({ name }, column) => {
        const text = found ? found.cells[column] : "…";
        row.append(element("div", { role: "gridcell", class: `tk-cell tk-col-${name}`, title: text }, text));
      });
      return row;
    },
    needed(from, to) {
      let missing = false;
      for (let at = from; at < to; at += 1) missing ||= !known.has(at);
      const wanted = `${state().version}:${from}:${to}`;
      if (!missing || waiting === wanted) return;
      waiting = wanted;
      send({ kind: "rows", order, from, to });
    },
  });
  const { el } = list;
  el.classList.add("tk-grid");
  const head = element("div", { role: "rowgroup", class: "tk-grid-head" });
  el.prepend(head);
  list.body.setAttribute("role", "rowgroup");

  const drawHead = () => {
    const { columns, sort_by: sorted, ascending, total } = state();
    const row = element("div", { role: "row", class: "tk-grid-row", "aria-rowindex": 1 });
    row.append(element("div", { role: "columnheader", class: "tk-cell", "aria-label": "Selected" }, "✓"));
    for (const { name, label, sortable } of columns) {
      const cell = element("div", { role: "columnheader", class: `tk-cell tk-col-${name}` });
      if (sortable) {
        const way = ascending ? "ascending" : "descending";
        cell.setAttribute("aria-sort", sorted === name ? way : "none");
        const sign = { ascending: " ▲", descending: " ▼" }[sorted === name ? way : ""] ?? "";
        cell.append(
          button(label + sign, () => send({ kind: "sort", name }), {
            title: `Sort by ${label}`,
            "data-name": name,
          }),
        );
      } else cell.textContent = label;
      row.append(cell);
    }
    const focused = head.contains(document.activeElement) && document.activeElement.dataset.name;
    head.replaceChildren(row);
    if (focused) head.querySelector(`[data-name="${focused}"]`)?.focus();
    el.setAttribute("aria-rowcount", total + 1);
  };

  const take = ({ version, from, rows }) => {
    if (version !== state().version) return; // the order was replaced meanwhile
    for (const [at, [selected, ...cells]] of rows.entries()) known.set(from + at, { selected, cells });
    waiting = "";
    list.draw();
  };

  const activate = (at) => {
    if (at < 0) return;
    list.activate(at, head.offsetHeight);
    send({ kind: "active", order, position: at });
  };

  const select = (one, other, on) => {
    const [first, last] = [Math.min(one, other), Math.max(one, other)];
    for (let at = first; at <= last; at += 1) if (known.has(at)) known.get(at).selected = on;
    list.draw();
    send({ kind: "select", order, from: first, to: last + 1, on });
  };

  const toggle = (at) => {
    anchor = at;
    select(at, at, !known.get(at)?.selected);
  };

  list.body.addEventListener("click", (event) => {
    const at = list.at(event);
    if (at < 0) return;
    if (event.shiftKey && anchor >= 0) select(anchor, at, true);
    else if (event.target.classList.contains("tk-mark") || event.ctrlKey || event.metaKey) toggle(at);
    activate(at);
  });
  el.addEventListener("keydown", (event) => {
    if (event.target !== el) return;
    const accelerated = event.ctrlKey || event.metaKey;
    const place = placeAfter(event.key, list.active, state().total, list.page);
    if (place !== null) {
      activate(state().total ? place : -1);
      if (event.shiftKey && event.key.startsWith("Arrow")) select(place, place, true);
    } else if (event.key === " " && list.active >= 0) toggle(list.active);
    else if (event.key === "Enter" && !event.shiftKey) activate(list.active);
    else if (event.key === "a" && accelerated) send({ kind: "all", order });
    else if (event.key === "c" && accelerated && getSelection().isCollapsed)
      send({ kind: "press", name: "Copy ids" });
    else return;
    event.preventDefault();
  });
  const show = () => {
    known = new Map();
    waiting = "";
    if (order !== state().order) {
      order = state().order;
      anchor = -1;
      list.restart();
    }
    list.resize(state().total);
    drawHead();
    take(state().page);
    if (!state().total) {
      const none = element("div", { role: "gridcell", class: "tk-empty" }, "No failure is found.");
      list.body.replaceChildren(element("div", { role: "row" }, none));
    }
  };
  return {
    ...list,
    take,
    show: () => list.steady(show),
    step(by) {
      const { shown, total } = state();
      const at = total ? Math.max(0, Math.min(total - 1, shown + by)) : -1;
      // the hidden table has not drawn the present order
      if (el.hidden) send({ kind: "active", order: state().order, position: at });
      else activate(at);
    },
  };
};

/** What is known about the group of the shown failure. */
const aboutGroup = (model) => {
  const el = element("div", { class: "tk-about" });
  const fact = (name, text) => (text ? [element("dt", {}, name), element("dd", {}, ...wrapping(text))] : []);
  const show = () => {
    const { id, state, title, where, rate, first, last, count, shares } = model.get("about");
    if (!id) {
      el.replaceChildren();
      return;
    }
    const all = count === 1 ? "The only failure has" : `All ${number(count)} share`;
    el.replaceChildren(
      element("div", { class: "tk-about-head" }, chip(state), element("h3", {}, title)),
      element(
        "dl",
        {},
        ...fact("Workflow", where),
        ...fact("Rate", rate),
        ...fact("First seen", first),
        ...fact("Last seen", last),
      ),
      element("h4", {}, all),
      element("div", { class: "tk-tags" }, ...shares.map((text) => element("span", {}, text))),
    );
  };
  return { el, show };
};

/** Rules of groups: merge, split, undo, and the file that keeps them; folded, because few people change them. */
const groupRules = (model, send, press) => {
  const columns = element("select", { "aria-label": "Split by" });
  columns.addEventListener("change", () => send({ kind: "split_by", column: columns.value }));
  const file = textField("Rules file", {
    hint: "rules.txt: keeps the groups",
    changed: (path) => send({ kind: "rules", path }),
  });
  const el = element(
    "details",
    { class: "tk-rules" },
    element("summary", {}, "Edit groups"),
    element(
      "div",
      { class: "tk-buttons" },
      button("More like this", () => press("More like this")),
      button("Merge groups", () => press("Merge groups")),
      columns,
      button("Split off this", () => press("Split off this")),
      button("Undo", () => press("Undo")),
      file.el,
    ),
  );
  return {
    el,
    show() {
      const { columns: names, rules } = model.get("board");
      if (columns.options.length !== names.length)
        columns.replaceChildren(...names.map((name) => element("option", {}, name)));
      file.show(rules);
    },
  };
};

// A plan is a panel of its own. Hosts of ipywidgets can draw it here; others show the sentence with its code.
const showPlan = async (model, place) => {
  const id = model.get("plan");
  if (!id || place.dataset.plan === id) return;
  place.dataset.plan = id;
  try {
    const child = await model.widget_manager.get_model(id);
    const view = await model.widget_manager.create_view(child);
    place.replaceChildren();
    // ipywidgets adds classes once a view is attached, which Lumino has to do
    const { luminoWidget } = view;
    if (luminoWidget?.constructor.attach) luminoWidget.constructor.attach(luminoWidget, place);
    else place.append(view.el);
  } catch {
    place.textContent = "The plan is in panel.redrive: show it in a cell of its own.";
  }
};

export default {
  render({ model, el }) {
    const send = (content) => model.send(content);
    let search; // a press uses the text that is seen, so it is sent before
    const press = (name) => {
      search.commit();
      send({ kind: "press", name });
    };
    beginPanel(model, el);

    search = textField("Search", {
      hint: "words that are all in it, such as orders/fulfil 500",
      changed: (text) => send({ kind: "search", text }),
    });
    const counts = element("div", { class: "tk-count", role: "status" });
    const remarks = element("div", { class: "tk-remarks" });
    const trend = brush((ends) => send({ kind: "range", ends }));
    const groups = groupList(model, send);
    const table = failureTable(model, send);
    const about = aboutGroup(model);
    const rules = groupRules(model, send, press);
    const code = codeBox(() => press("Copy code"));
    const status = element("div", { class: "tk-status" });
    const plan = element("div", { class: "tk-plan-place" });
    const all = button("All groups", () => press("All groups"), { class: "tk-plain" });
    const position = element("span", { class: "tk-sub" });
    const detail = element("div", { class: "tk-beside" });
    const split = element("div", { class: "tk-split" });
    const modes = ["Groups", "Failures"].map((name) =>
      button(name, () => choose(name), { "aria-pressed": "false" }),
    );

    const choose = (mode) => {
      for (const shown of modes) shown.setAttribute("aria-pressed", String(shown.textContent === mode));
      split.dataset.mode = mode;
      groups.el.hidden = mode !== "Groups";
      table.el.hidden = mode !== "Failures";
      (mode === "Groups" ? groups : table).show();
    };

    const steps = element(
      "div",
      { class: "tk-steps" },
      element("h4", {}, "One failure"),
      position,
      button("←", () => table.step(-1), { "aria-label": "Previous failure", class: "tk-plain" }),
      button("→", () => table.step(1), { "aria-label": "Next failure", class: "tk-plain" }),
    );
    const clear = button("Clear selection", () => press("Clear selection"), { class: "tk-plain" });
    const actions = element(
      "div",
      { class: "tk-buttons tk-actions-bar" },
      button("Plan a redrive", () => press("Plan a redrive"), { class: "tk-primary" }),
      button("Find a runbook", () => press("Find a runbook")),
      button("Copy ids", () => press("Copy ids")),
      button("Select all found", () => press("Select all found")),
      clear,
    );
    split.append(groups.el, table.el, element("div", { class: "tk-side" }, about.el, steps, detail));
    const possible = model.get("board").possible;
    el.append(
      element(
        "div",
        { class: "tk-tool" },
        search.el,
        ...(possible
          ? [element("div", { class: "tk-seg", role: "group", "aria-label": "Show" }, ...modes)]
          : []),
        all,
        counts,
      ),
      ...(possible ? [trend.el] : []),
      remarks,
      split,
      actions,
      ...(possible ? [rules.el] : []),
      status,
      code.el,
      plan,
    );

    // the list also marks the group of the shown failure; without groups it has a text instead of rows
    const showGroups = () => {
      if (model.get("board").groups.length) groups.draw();
      else groups.show();
    };
    const showView = () => {
      const view = model.get("view");
      search.show(view.search);
      counts.textContent = view.counts;
      remarks.innerHTML = view.remarks;
      all.hidden = !view.groups.length;
      showGroups();
    };
    let version = -1;
    const showTable = () => {
      const { shown, total, version: now } = model.get("table");
      position.textContent = shown < 0 ? "none" : `${number(shown + 1)} of ${number(total)} found`;
      if (table.el.hidden) return;
      if (version === now) table.draw();
      else table.show();
      version = now;
    };
    const handlers = {
      "change:view": showView,
      "change:table": showTable,
      "change:trend": () => trend.show(model.get("trend")),
      "change:board": () => {
        groups.show();
        rules.show();
      },
      "change:detail": () => {
        detail.innerHTML = model.get("detail");
      },
      "change:about": () => {
        about.show();
        showGroups();
      },
      "change:status": () => {
        status.innerHTML = model.get("status");
      },
      "change:code": () => code.show(model.get("code")),
      "change:plan": () => showPlan(model, plan),
      "msg:custom": async (content) => {
        if (content.kind === "rows") table.take(content);
        else send({ kind: "copied", status: content.status, done: await copied(el, content.text) });
      },
    };
    for (const [event, handler] of Object.entries(handlers)) model.on(event, handler);
    choose(possible ? "Groups" : "Failures");
    for (const [event, handler] of Object.entries(handlers)) if (event.startsWith("change:")) handler();
    return () => {
      groups.stop();
      table.stop();
      for (const [event, handler] of Object.entries(handlers)) model.off(event, handler);
    };
  },
};
