// The watch panel: groups of failures, new ones on top with a mark, brought up to date by the kernel.
import { beginPanel, button, codeBox, copied, element, longList, placeAfter, smallBars } from "./kit.js";

const KINDS = { new: "new", "back again": "growing", growing: "growing" };
const WATCH_WORDS = {
  new: "New",
  "back again": "Back again",
  growing: "Growing",
  steady: "Steady",
  ended: "Ended",
};

/** What a screen reader is told about new rows: nothing if no group is marked.
 * @param {{marked: boolean, title: string}[]} groups */
export const newsOf = (groups) => {
  const marked = groups.filter((group) => group.marked);
  if (!marked.length) return "";
  return `${marked.length} new or worse: ${marked.map((group) => group.title).join("; ")}`;
};

export default {
  render({ model, el }) {
    const press = (name) => model.send({ kind: "press", name });
    beginPanel(model, el);
    let groups = [];
    const list = longList({
      label: "Groups",
      role: "listbox",
      height: () => 56,
      row(at) {
        const group = groups[at];
        const chip = element("span", { class: `tk-chip tk-chip-${group.state.replace(" ", "-")}` });
        chip.textContent = WATCH_WORDS[group.state] ?? group.state;
        const mark = group.marked ? "● " : "";
        return element(
          "div",
          { class: "tk-group", role: "option", "aria-selected": "false" },
          chip,
          element(
            "div",
            { class: "tk-what" },
            element("div", { class: "tk-title" }, `${mark}${group.title}`),
            element("div", { class: "tk-sub" }, `${group.recent.toLocaleString("en-US")} in 24 hours`),
          ),
          smallBars(
            group.bars,
            `${group.recent} failures in the last 24 hours, by hour`,
            KINDS[group.state] ?? "other",
          ),
          element("b", { class: "tk-n" }, group.count.toLocaleString("en-US")),
        );
      },
    });
    list.el.classList.add("tk-groups");
    list.el.addEventListener("keydown", (event) => {
      const place = placeAfter(event.key, list.active, groups.length, list.page);
      if (place === null) return;
      list.activate(place);
      event.preventDefault();
    });
    const counts = element("div", { class: "tk-count" });
    const news = element("div", { class: "tk-sub tk-news", role: "status" });
    const status = element("div", { class: "tk-status" });
    const stop = button("Stop", () => press("Stop"), { class: "tk-primary" });
    const start = button("Start", () => press("Start"), { class: "tk-primary" });
    const seen = button("Mark as seen", () => press("Mark as seen"));
    const code = codeBox(() => copied(el, code.el.textContent));
    el.append(
      element("div", { class: "tk-tool" }, stop, start, seen, counts),
      news,
      list.el,
      status,
      code.el,
    );

    const showEmpty = () => {
      if (groups.length) return;
      const text = model.get("state").empty;
      const line = element("div", { class: "tk-empty", role: "option", "aria-selected": "false" }, text);
      list.body.replaceChildren(line);
    };
    const handlers = {
      "change:groups": () => {
        groups = model.get("groups");
        seen.hidden = !groups.some((group) => group.marked);
        news.textContent = newsOf(groups);
        list.resize(groups.length);
        list.draw();
        showEmpty();
      },
      "change:state": () => {
        const { running, counts: words } = model.get("state");
        counts.textContent = words ?? "";
        stop.hidden = !running;
        start.hidden = Boolean(running);
        showEmpty();
      },
      "change:status": () => {
        status.innerHTML = model.get("status");
      },
      "change:code": () => code.show(model.get("code")),
    };
    for (const [event, handler] of Object.entries(handlers)) {
      model.on(event, handler);
      handler();
    }
    return () => {
      list.stop();
      for (const [event, handler] of Object.entries(handlers)) model.off(event, handler);
    };
  },
};
