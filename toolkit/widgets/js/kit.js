// Parts that the panels share: list, brush, small bars, field, code box. Each is a function that returns an element and
// functions to update it. Text from data is inserted as text. The functions at the top compute only, and Node.js tests them.

/** @typedef {[number, number, string]} Zone A time, how many ms its clock is ahead of UTC from then on, and the name. */

/** Times as the panel's time zone shows them.
 * @param {Zone[]} zones the changes of clocks, in order
 * @param {number} ms a time in Unix milliseconds */
export const timeIn = (zones, ms) => {
  const [, ahead, name] = zones.findLast(([from]) => from <= ms) ?? zones[0] ?? [0, 0, "UTC"];
  return `${new Date(ms + ahead).toISOString().slice(0, 16).replace("T", " ")} ${name}`;
};

/** The rows to draw: the visible ones, and some before and after them.
 * @param {number} top pixels that are scrolled away
 * @param {number} height pixels that can be seen
 * @param {number} row pixels of one row
 * @param {number} total number of rows
 * @param {number} spare rows before and after the visible ones
 * @returns {[number, number]} the first row, and the one after the last */
export const visibleRows = (top, height, row, total, spare = 12) => {
  const first = Math.max(0, Math.min(Math.floor(top / row) - spare, total - 1));
  return [first, Math.min(total, first + Math.ceil(height / row) + 2 * spare)];
};

/** The place that a key moves to, or null if the key does not move.
 * @param {string} key
 * @param {number} at the present place; -1 before the first
 * @param {number} count number of places
 * @param {number} page places per page */
export const placeAfter = (key, at, count, page) => {
  const moves = {
    ArrowDown: at + 1,
    ArrowUp: at - 1,
    PageDown: at + page,
    PageUp: at - page,
    Home: 0,
    End: count - 1,
  };
  return key in moves ? Math.max(0, Math.min(count - 1, moves[key])) : null;
};

/** The bar that contains a time. Days can have 23 or 25 hours, so the starts are searched.
 * @param {number[]} starts
 * @param {number} ms */
export const barOf = (starts, ms) =>
  Math.max(
    0,
    starts.findLastIndex((start) => start <= ms),
  );

/** The range of bars after one end was moved; the other end follows if it is passed.
 * @param {[number, number]} range first and last bar, both included
 * @param {0 | 1} end
 * @param {number} bar */
export const rangeAfter = (range, end, bar) => {
  const moved = [...range];
  moved[end] = bar;
  if (moved[0] > moved[1]) moved[1 - end] = bar;
  return moved;
};

/** Heights of bars in pixels: at least 1 if there is something, at most `height`, and 0 for nothing.
 * @param {number[]} counts
 * @param {number} height
 * @param {number} [most] the count of a full bar; higher ones are cut */
export const heightsOf = (counts, height, most = Math.max(1, ...counts)) =>
  counts.map((count) => (count ? Math.max(1, Math.min(1, count / most) * height) : 0));

export const element = (name, attributes = {}, ...parts) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...parts);
  return made;
};

/** A text with places after its slashes at which a line of an address may end.
 * @param {string} text */
export const wrapping = (text) =>
  text.split(/(?<=[\w.~%-]\/)(?!\/|$)/).flatMap((part, at) => (at ? [element("wbr"), part] : [part]));

const drawn = (name, attributes = {}, ...parts) => {
  // of an SVG
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...parts);
  return made;
};

let ids = 0;
export const uniqueId = () => {
  ids += 1;
  return `tk-${Date.now().toString(36)}-${ids}`;
};

export const button = (name, pressed, attributes = {}) => {
  const shown = element("button", { type: "button", ...attributes }, name);
  shown.addEventListener("click", pressed);
  return shown;
};

// JupyterLab listens for its shortcuts on the document, and treats a key pressed in a button or list as one of them:
// "d d" deletes the cell. Only keys that run cells, save, or open the command palette are passed on.
const passes = (event) => {
  const accelerated = event.ctrlKey || event.metaKey;
  if (event.key === "Enter") return event.shiftKey || event.altKey || accelerated;
  return /^F\d+$/.test(event.key) || (accelerated && ["s", "C", "P"].includes(event.key));
};
export const keepKeys = (root) =>
  root.addEventListener("keydown", (event) => {
    if (!passes(event)) event.stopPropagation();
  });

/** Prepare the element of a panel: its class, its name for readers of screens, and its keys. */
export const beginPanel = (model, el) => {
  el.classList.add("tk-kit");
  el.setAttribute("role", "group");
  el.setAttribute("aria-label", model.get("title"));
  keepKeys(el);
  // JupyterLab marks widgets of a lost kernel, but anywidget removes the listener that does it. The event comes only
  // when a kernel is lost: a cell that is run again makes a new panel.
  model.on("comm_live_update", () => el.classList.add("jupyter-widgets-disconnected"));
};

/** Put a text into the clipboard. Returns false if the page may not do that. */
export const copied = async (root, text) => {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // a page without HTTPS has no clipboard API: use the older command
    const focused = document.activeElement;
    const field = element("textarea", { "aria-hidden": "true", class: "tk-copied" });
    field.value = text;
    root.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    focused?.focus({ preventScroll: true });
    return done;
  }
};

/** A field with a label, and a function that is called with the text on Enter and when the field is left. */
export const textField = (label, { hint = "", changed }) => {
  const id = uniqueId();
  const input = element("input", {
    id,
    type: "text",
    placeholder: hint,
    autocomplete: "off",
    spellcheck: "false",
  });
  let known = "";
  const commit = () => {
    if (input.value === known) return;
    known = input.value;
    changed(known);
  };
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") commit();
  });
  input.addEventListener("blur", commit);
  return {
    el: element("div", { class: "tk-entry" }, element("label", { for: id }, label), input),
    input,
    commit,
    show(text) {
      if (input.value === known) input.value = text; // else somebody is typing
      known = text;
    },
  };
};

/** Small bars of a row; those from `hot` on have the color of the state. */
export const smallBars = (counts, label, kind) => {
  const svg = drawn("svg", {
    viewBox: `0 0 ${Math.max(counts.length, 1)} 22`,
    preserveAspectRatio: "none",
    class: `tk-bars tk-is-${kind}`,
    "aria-hidden": "true",
  });
  heightsOf(counts, 21).forEach((height, x) => {
    if (height) svg.append(drawn("rect", { x: x + 0.1, y: 22 - height, width: 0.8, height }));
  });
  svg.append(drawn("title", {}, label));
  return svg;
};

/** The code that gives the same result, with a button that copies it. */
export const codeBox = (pressed) => {
  const text = element("div", { class: "tk-code-text" });
  const copy = button("Copy", pressed, {
    "aria-label": "Copy code",
    class: "tk-plain",
  });
  const el = element("div", { class: "tk-codebox", role: "group", "aria-label": "Code" }, text, copy);
  return {
    el,
    show: (markup) => {
      text.innerHTML = markup;
      copy.hidden = !markup;
    },
  };
};

const STILL = 5; // pixels that a pointer may move in a click

/** A list of rows of equal height, of which only the visible ones are in the page.
 * @param {{label: string, role: string, height: () => number, row: (at: number) => HTMLElement, needed?: (from: number, to: number) => void}} options */
export const longList = ({ label, role, height, row, needed = () => {} }) => {
  const el = element("div", {
    class: "tk-list",
    role,
    tabindex: "0",
    "aria-multiselectable": "true",
    "aria-label": label,
  });
  const body = element("div", { class: "tk-list-body", role: "presentation" });
  el.append(body);
  const id = uniqueId();
  let total = 0;
  let active = -1;
  let frame = 0;
  // A row that is replaced or moved between press and release gets no click. So changes wait until the pointer is
  // up, and if the page has moved under the pointer, the row that was pressed gets the click.
  let press = null;
  const postponed = new Set();
  const steady = (change) => {
    if (press) postponed.add(change);
    else change();
  };
  const finish = ({ type, clientX, clientY, ctrlKey, metaKey, shiftKey }) => {
    if (!press) return;
    const { target, x, y, clicked } = press;
    const still = type === "pointerup" && Math.hypot(clientX - x, clientY - y) < STILL;
    if (still && !clicked)
      target.dispatchEvent(new MouseEvent("click", { bubbles: true, ctrlKey, metaKey, shiftKey }));
    press = null;
    const changes = [...postponed];
    postponed.clear();
    for (const change of changes) change();
  };
  const released = (event) => setTimeout(finish, 0, event); // after the click, which follows the release
  body.addEventListener("pointerdown", ({ button, pointerType, target, clientX: x, clientY: y }) => {
    if (button || pointerType !== "mouse") return; // the click of a finger follows its release later
    press = { target, x, y, clicked: false };
    for (const name of ["pointerup", "pointercancel"])
      document.addEventListener(name, released, { once: true });
  });
  body.addEventListener("click", ({ target }) => {
    if (press && target.closest("[data-at]")) press.clicked = true;
  });
  const drawNow = () => {
    if (el.hidden) return;
    const [from, to] = visibleRows(el.scrollTop, el.clientHeight || 430, height(), total);
    body.style.height = `${total * height()}px`;
    const rows = [];
    for (let at = from; at < to; at += 1) {
      const made = row(at);
      made.id = `${id}-${at}`;
      made.dataset.at = at;
      made.style.top = `${at * height()}px`;
      if (at === active) made.classList.add("tk-active");
      rows.push(made);
    }
    body.replaceChildren(...rows);
    if (active >= from && active < to) el.setAttribute("aria-activedescendant", `${id}-${active}`);
    else el.removeAttribute("aria-activedescendant");
    needed(from, to);
  };
  const draw = () => steady(drawNow);
  el.addEventListener("scroll", () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(drawNow);
  });
  const sized = new ResizeObserver(() => {
    if (total) draw(); // the text of an empty list stays
  });
  sized.observe(el);
  return {
    el,
    body,
    draw,
    steady,
    at: (event) => Number(event.target.closest("[data-at]")?.dataset.at ?? -1),
    get active() {
      return active;
    },
    get page() {
      return Math.max(1, Math.floor(el.clientHeight / height()) - 1);
    },
    resize(count) {
      total = count;
      active = Math.min(active, count - 1);
    },
    activate(at, head = 0) {
      active = at;
      const top = at * height();
      const seen = el.clientHeight - head;
      if (top < el.scrollTop) el.scrollTop = top;
      else if (top + height() > el.scrollTop + seen) el.scrollTop = top + height() - seen;
      draw();
    },
    restart() {
      active = -1;
      el.scrollTop = 0;
    },
    stop() {
      sized.disconnect();
      cancelAnimationFrame(frame);
    },
  };
};

const BRUSH = 44; // pixels of the highest bar

/** A histogram over time with a range on it: dragged with the pointer, or moved with two handles by keys.
 * `changed` gets [] for all times, or the first and the last millisecond. */
export const brush = (changed) => {
  const el = element("div", {
    class: "tk-brush",
    role: "group",
    "aria-label": "Time range on the histogram",
  });
  const svg = drawn("svg", { preserveAspectRatio: "none", role: "img" });
  const field = element("div", { class: "tk-brush-field" }, svg);
  const caption = element("div", { class: "tk-note" });
  field.hidden = true;
  el.append(field, caption);
  let state = { starts: [], counts: [], series: [], gaps: [], zones: [], limit: 1, width: 1, selection: [] };
  let range = null; // first and last bar, both included
  let begun = null; // the bar in which a drag began
  const bars = () => state.counts.length;
  const endOf = (bar) => state.starts[bar + 1] ?? state.starts[bar] + state.width;
  const time = (ms) => timeIn(state.zones, ms);
  const clamp = (bar) => Math.max(0, Math.min(bars() - 1, bar));
  const handles = ["from", "until"].map((name, end) => {
    const handle = element("div", {
      class: "tk-handle",
      tabindex: 0,
      role: "slider",
      "aria-label": `Time range ${name}`,
    });
    handle.addEventListener("keydown", (event) => key(event, end));
    field.append(handle);
    return handle;
  });

  const read = () => {
    const { selection: chosen, starts } = state;
    range = null;
    if (chosen.length === 2 && starts.length) {
      range = [barOf(starts, chosen[0] ?? starts[0]), barOf(starts, chosen[1] ?? starts[starts.length - 1])];
    }
  };

  const draw = () => {
    const { counts, gaps, starts, limit } = state;
    field.hidden = !counts.length; // a slider without values has no meaning
    if (!counts.length) return;
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${counts.length} ${BRUSH}`);
    const total = counts.reduce((sum, count) => sum + count, 0);
    svg.setAttribute("aria-label", `${total} failures from ${time(starts[0])} to ${time(endOf(bars() - 1))}`);
    const [first, last] = range ?? [0, counts.length - 1];
    if (range)
      svg.append(
        drawn("rect", { x: first, y: 0, width: last - first + 1, height: BRUSH, class: "tk-range" }),
      );
    for (const area of field.querySelectorAll(".tk-gap")) area.remove();
    gaps.forEach((inGap, bar) => {
      // a stretched SVG distorts hatching
      const place = `left: ${(bar / counts.length) * 100}%; width: ${100 / counts.length}%`;
      if (inGap) field.append(element("div", { class: "tk-gap", style: place }));
    });
    const heights = heightsOf(counts, BRUSH - 2, limit || undefined);
    counts.forEach((count, bar) => {
      const outside = bar >= first && bar <= last ? "" : " tk-outside";
      let y = BRUSH;
      for (const { kind, counts: own } of state.series) {
        const height = own[bar] && (own[bar] / count) * heights[bar];
        y -= height;
        if (height)
          svg.append(
            drawn("rect", { x: bar + 0.04, y, width: 0.92, height, class: `tk-bar tk-is-${kind}${outside}` }),
          );
      }
      if (count > limit) svg.append(drawn("rect", { x: bar, y: 0, width: 1, height: 3, class: "tk-cut" }));
    });
    let note = counts.some((count) => count > limit) ? `; bars are cut at ${Math.round(limit)}` : "";
    if (gaps.some(Boolean)) note += "; hatched: failures that expired before they were read are missing";
    const chosen = range ? [starts[first], endOf(last) - 1] : [];
    const [from, until] = begun === null && state.selection.length ? state.selection : chosen;
    let shown = `${time(starts[0])} – ${time(endOf(bars() - 1))} (all; click or drag to choose)`;
    if (from && until) shown = `${time(from)} – ${time(until)}`;
    else if (from) shown = `from ${time(from)}`;
    else if (until) shown = `until ${time(until)}`;
    caption.textContent = shown + note;
    handles.forEach((handle, end) => {
      const bar = end ? last : first;
      handle.style.left = `${((bar + end) / counts.length) * 100}%`;
      handle.setAttribute("aria-valuemin", 0);
      handle.setAttribute("aria-valuemax", counts.length - 1);
      handle.setAttribute("aria-valuenow", bar);
      handle.setAttribute(
        "aria-valuetext",
        time((end ? until : from) || (end ? endOf(last) : starts[first])),
      );
    });
  };

  const commit = () => {
    state = { ...state, selection: range ? [state.starts[range[0]], endOf(range[1]) - 1] : [] };
    changed(state.selection);
    draw();
  };

  const key = (event, end) => {
    if (!bars()) return;
    const step = Math.max(1, Math.round(bars() / 10));
    const moves = {
      ArrowLeft: -1,
      ArrowDown: -1,
      ArrowRight: 1,
      ArrowUp: 1,
      PageDown: -step,
      PageUp: step,
      Home: -bars(),
      End: bars(),
    };
    if (event.key in moves) {
      const now = range ?? [0, bars() - 1];
      range = rangeAfter(now, end, clamp(now[end] + moves[event.key]));
    } else if (["Escape", "Delete", "Backspace"].includes(event.key)) range = null;
    else return;
    event.preventDefault();
    commit();
  };

  let before = "";
  const at = (event) => {
    const box = svg.getBoundingClientRect();
    return clamp(Math.floor(((event.clientX - box.left) / box.width) * bars()));
  };
  svg.addEventListener("pointerdown", (event) => {
    begun = at(event);
    before = String(range);
    range = [begun, begun];
    svg.setPointerCapture(event.pointerId);
    event.preventDefault();
    draw();
  });
  svg.addEventListener("pointermove", (event) => {
    if (begun === null) return;
    range = [Math.min(begun, at(event)), Math.max(begun, at(event))];
    draw();
  });
  svg.addEventListener("pointerup", () => {
    if (begun === null) return;
    begun = null;
    if (String(range) === before) range = null; // the same bar again selects all times
    commit();
  });
  svg.addEventListener("pointercancel", () => {
    begun = null;
    read();
    draw();
  });
  return {
    el,
    show(next) {
      state = { ...state, ...next };
      if (begun !== null) return; // the range is being dragged
      read();
      draw();
    },
  };
};
