// Fields of a panel: text with completions, lists to choose from, buttons; and the frame around them. The kernel keeps
// the state of each field. A part draws one state, and sends the changes of a person as messages with a number.
import { beginPanel, button, codeBox, copied, element, uniqueId, wrapping } from "./kit.js";

const PAUSE = 60; // ms after the last letter, until it is sent
const ROOM = 190; // pixels below a field that the list of completions needs

/** @typedef {{kind: string, label: string, problem: string | null, remark: string, hidden: boolean, seen: number}} State */

/** The rows of a list while a person aims at one: the same values at the same places, with the latest counts.
 * @param {{value: string}[]} shown
 * @param {{value: string}[]} latest */
export const inPlace = (shown, latest) => {
  const found = new Map(latest.map((row) => [row.value, row]));
  return shown.map((row) => found.get(row.value) ?? { ...row, count: "", on: false });
};

/** The option that an arrow key marks; -1 for none.
 * @param {string} key
 * @param {number} at the marked option
 * @param {number} count number of options */
export const optionAfter = (key, at, count) => {
  if (!count) return -1;
  if (key === "ArrowDown") return (at + 1) % count;
  return (at < 0 ? count : at) - 1;
};

/** The numbers of a field's messages. A state that follows an older message than the last one is out of date.
 * @param {(content: object) => void} send */
export const numbered = (send) => {
  let last = 0;
  return {
    /** @param {number} seen the number of the last message that the kernel knows */
    send(content, seen) {
      last = Math.max(last, seen) + 1;
      send({ ...content, number: last });
    },
    current: (seen) => seen >= last,
  };
};

// The label above a field, and the problem or the remark below it.
const around = (field, attributes = {}) => {
  const below = element("div", { class: "tk-below" });
  const el = element("div", { class: "tk-control", ...attributes }, ...field, below);
  const line = (text, kind, role) => (text ? [element("div", { class: kind, role }, ...wrapping(text))] : []);
  return {
    el,
    explain({ problem, remark, hidden }) {
      el.hidden = hidden;
      const lines = [
        ...line(problem && `⚠ ${problem}`, "tk-problem", "alert"),
        ...line(remark, "tk-note", "status"),
      ];
      // a line that stays is not announced again
      const same = below.textContent === lines.map((made) => made.textContent).join("");
      if (!same) below.replaceChildren(...lines);
    },
  };
};

/** The list of completions below a field. While the pointer is on it, it stays, so that a click takes the option it
 * was aimed at. */
const offerList = (input, picked) => {
  const id = uniqueId();
  const el = element("div", { id, role: "listbox", class: "tk-offers", popover: "manual" });
  let offers = [];
  let active = -1;
  const place = () => {
    const at = input.getBoundingClientRect();
    const below = innerHeight - at.bottom;
    const under = below > ROOM || below > at.top;
    el.style.left = `${at.left}px`;
    el.style.minWidth = `${Math.min(at.width, 320)}px`;
    el.style.maxWidth = `${innerWidth - at.left - 12}px`;
    el.style.maxHeight = `${Math.min(260, (under ? below : at.top) - 8)}px`;
    el.style.top = under ? `${at.bottom + 2}px` : "auto";
    el.style.bottom = under ? "auto" : `${innerHeight - at.top + 2}px`;
  };
  const mark = (at) => {
    active = at;
    for (const [number, option] of [...el.children].entries()) {
      option.setAttribute("aria-selected", String(number === active));
      if (number === active) option.scrollIntoView({ block: "nearest" });
    }
    if (active < 0) input.removeAttribute("aria-activedescendant");
    else input.setAttribute("aria-activedescendant", `${id}-${active}`);
  };
  const show = (found) => {
    offers = found;
    const options = offers.map(([shown], number) =>
      element("div", { id: `${id}-${number}`, role: "option" }, shown),
    );
    el.replaceChildren(...options);
    mark(-1);
    el.classList.toggle("tk-open", offers.length > 0);
    if (input.getAttribute("role") === "combobox")
      input.setAttribute("aria-expanded", String(offers.length > 0));
    if (!el.showPopover || !el.isConnected) return; // then the style draws it below the field
    if (el.matches(":popover-open") !== offers.length > 0) el.togglePopover();
    if (offers.length) place();
  };
  el.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
  el.addEventListener("click", (event) => {
    const number = [...el.children].indexOf(event.target.closest("[role=option]"));
    if (number >= 0) picked(offers[number]);
  });
  const scrolled = () => offers.length && place();
  addEventListener("scroll", scrolled, { capture: true, passive: true });
  return {
    el,
    id,
    show,
    get open() {
      return offers.length > 0;
    },
    get marked() {
      return offers[active];
    },
    move: (key) => mark(optionAfter(key, active, offers.length)),
    stop: () => removeEventListener("scroll", scrolled, { capture: true }),
  };
};

/** A line of text, or a text that grows. Letters are sent before the Enter after them. */
const textPart = (state, send, drawn) => {
  const id = uniqueId();
  const { follows, completes } = state;
  const label = element("label", { for: id });
  const input = element(follows ? "textarea" : "input", {
    id,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    ...(follows ? { rows: 1 } : { type: "text" }),
  });
  const messages = numbered(send);
  let known = state.text; // the last text that the kernel received or set
  let wanted = false; // whether completions were requested
  let unsent = false; // letters that were not sent yet
  let held = false; // whether the pointer is on the completions
  let latest = state;
  let pause = 0;
  let focused = drawn ? 0 : state.focused;

  const fit = () => {
    if (!follows) return;
    input.style.height = "auto";
    input.style.height = `${input.scrollHeight + 2}px`;
  };
  const report = (event) => {
    clearTimeout(pause);
    unsent = false;
    if (follows || event !== "typed") known = input.value;
    const head = input.value.slice(0, input.selectionStart);
    messages.send({ event, text: input.value, head }, latest.seen);
  };
  const list = offerList(input, (offer) => pick(offer));
  const close = () => {
    wanted = false;
    held = false;
    if (list.open) list.show([]);
  };
  const ask = () => {
    if (!completes) return;
    wanted = true;
    report("typed");
  };
  const pick = ([, head, tail]) => {
    input.value = head + tail;
    input.setSelectionRange(head.length, head.length);
    fit();
    close();
    if (follows)
      ask(); // what can follow
    else report("changed");
  };
  const answered = () => {
    if (held || unsent || !messages.current(latest.seen)) return;
    list.show(wanted && document.activeElement === input ? latest.offers : []);
  };
  const commit = () => {
    if (unsent || input.value !== known) report("changed");
  };

  if (completes) {
    const role = follows ? { "aria-haspopup": "listbox" } : { role: "combobox", "aria-expanded": "false" };
    for (const [name, value] of Object.entries(role)) input.setAttribute(name, value);
    input.setAttribute("aria-autocomplete", "list");
    input.setAttribute("aria-controls", list.id);
  }
  input.addEventListener("input", () => {
    fit();
    wanted = true;
    unsent = true;
    held = false; // what is typed is shown, wherever the pointer rests
    clearTimeout(pause);
    if (completes || follows) pause = setTimeout(() => report("typed"), PAUSE);
  });
  input.addEventListener("click", ask);
  input.addEventListener("blur", () => {
    close();
    commit();
  });
  input.addEventListener("keydown", (event) => {
    if (event.isComposing || event.ctrlKey || event.metaKey) return;
    const vertical = event.key === "ArrowDown" || event.key === "ArrowUp";
    if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
      if (list.marked) pick(list.marked);
      else {
        close();
        report("submit");
      }
    } else if (event.key === "Escape" && list.open) close();
    else if (vertical && list.open) list.move(event.key);
    else if (event.key === "ArrowDown" && (!follows || input.selectionStart === input.value.length)) ask();
    else {
      if (/^(Arrow|Home|End)/.test(event.key)) close();
      return;
    }
    event.preventDefault();
  });
  list.el.addEventListener("pointermove", () => {
    held = true;
  });
  list.el.addEventListener("pointerleave", () => {
    held = false;
    answered();
  });
  const sized = new ResizeObserver(fit);
  sized.observe(input.ownerDocument.body);

  const frame = around([label, input, ...(completes ? [list.el] : [])]);
  const attend = () => {
    if (latest.focused === focused || !input.isConnected) return;
    focused = latest.focused;
    input.focus();
  };
  input.value = known;
  return {
    el: frame.el,
    commit,
    show(next) {
      // text that was typed and not entered yet stays if the kernel only sent completions
      const renewed = next.text !== latest.text;
      latest = next;
      label.textContent = next.label;
      list.el.setAttribute("aria-label", `${next.label}: what can follow`);
      input.placeholder = next.hint;
      frame.explain(next);
      if (renewed && !unsent && messages.current(next.seen)) {
        known = next.text;
        if (input.value !== known) {
          input.value = known;
          fit();
        }
      }
      answered();
      attend();
    },
    attach() {
      fit();
      attend();
    },
    stop() {
      clearTimeout(pause);
      sized.disconnect();
      list.stop();
    },
  };
};

/** A drop-down list. The choice is sent by name, which is right even if the list has changed meanwhile. */
const choicePart = (state, send) => {
  const id = uniqueId();
  const label = element("label", { for: id });
  const select = element("select", { id });
  const messages = numbered(send);
  let latest = state;
  select.addEventListener("change", () => messages.send({ value: select.value }, latest.seen));
  const frame = around([label, select], { class: "tk-control tk-choosing" });
  return {
    el: frame.el,
    show(next) {
      latest = next;
      label.textContent = next.label;
      frame.explain(next);
      const value = messages.current(next.seen) ? next.value : select.value;
      const names = next.options.includes(value) ? next.options : [value, ...next.options];
      if (String([...select.options].map((option) => option.value)) !== String(names))
        select.replaceChildren(...names.map((name) => new Option(name, name)));
      select.value = value;
    },
  };
};

/** Several values out of many: a search field, and a checkbox for each visible value. Enter takes the first match.
 * While the pointer or the focus is on the values, they keep their places, so that a click takes what it was aimed at. */
const ticksPart = (state, send) => {
  const id = uniqueId();
  const { searches } = state;
  const label = element(searches ? "label" : "div", { class: "tk-label", ...(searches ? { for: id } : {}) });
  const input = element("input", {
    id,
    type: "text",
    placeholder: "search",
    autocomplete: "off",
    spellcheck: "false",
  });
  const rows = element("div", { class: "tk-ticks", role: "group" });
  const messages = numbered(send);
  const held = { pointer: false, focus: false };
  let latest = state;
  let visible = [];
  let pause = 0;

  const tell = (content) => messages.send(content, latest.seen);
  const search = () => {
    clearTimeout(pause);
    tell({ event: "typed", text: input.value });
  };
  const take = (event) => {
    clearTimeout(pause);
    tell({ event, text: input.value });
    input.value = "";
    input.focus();
  };
  const literal = button("", () => take("literal"), { class: "tk-literal" });
  const added = () => {
    const box = element("input", { type: "checkbox" });
    const line = element("label", {}, box, element("span", {}, "", element("small")));
    box.addEventListener("change", () =>
      tell({ event: "ticked", value: line.dataset.value, on: box.checked }),
    );
    rows.append(line);
    return line;
  };
  const draw = () => {
    if (!messages.current(latest.seen)) return;
    const aimed = held.pointer || held.focus;
    visible = aimed ? inPlace(visible, latest.rows) : latest.rows;
    const lines = [...rows.children];
    while (lines.length < visible.length) lines.push(added());
    const sought = Boolean(input.value.trim());
    for (const [at, line] of lines.entries()) {
      // the same checkboxes are used again, so that they keep the focus
      line.hidden = at >= visible.length;
      if (line.hidden) continue;
      const { value, text, title, count, on } = visible[at];
      const [box, name] = line.children;
      line.dataset.value = value;
      line.title = title;
      line.classList.toggle("tk-first", sought && at === 0);
      box.checked = on;
      const number = name.lastChild;
      number.textContent = count;
      name.replaceChildren(...wrapping(text), number);
    }
    literal.hidden = !latest.literal;
    literal.textContent = latest.literal;
    const focused = document.activeElement;
    if (focused?.closest("[hidden]") && frame.el.contains(focused)) input.focus();
  };
  const hold = (how, on) => {
    const before = held[how];
    held[how] = on;
    if (before && !on) draw();
  };

  rows.addEventListener("pointermove", () => hold("pointer", true));
  rows.addEventListener("pointerleave", () => hold("pointer", false));
  rows.addEventListener("focusin", () => hold("focus", true));
  rows.addEventListener("focusout", (event) => hold("focus", rows.contains(event.relatedTarget)));
  input.addEventListener("input", () => {
    hold("pointer", false); // what is searched for is shown, wherever the pointer rests
    clearTimeout(pause);
    pause = setTimeout(search, PAUSE);
  });
  const field = [label, ...(searches ? [input] : []), rows, literal];
  const frame = around(field, { class: "tk-control tk-choices" });
  frame.el.addEventListener("keydown", (event) => {
    const boxes = [...rows.querySelectorAll("label:not([hidden]) input")];
    const stops = [...(searches ? [input] : []), ...boxes, ...(literal.hidden ? [] : [literal])];
    const at = stops.indexOf(event.target);
    const moves = { ArrowDown: at + 1, ArrowUp: at - 1 };
    if (event.key === "Enter" && event.target === input && !event.shiftKey && !event.isComposing) {
      if (input.value.trim()) take("enter");
    } else if (event.key === "Escape" && input.value) {
      input.value = "";
      input.focus();
      search();
    } else if (event.key in moves && at >= 0)
      stops[Math.max(0, Math.min(stops.length - 1, moves[event.key]))].focus();
    else return;
    event.preventDefault();
  });
  return {
    el: frame.el,
    show(next) {
      latest = next;
      label.textContent = next.label;
      rows.setAttribute("aria-label", `${next.label}: values`);
      frame.explain(next);
      draw();
    },
    stop: () => clearTimeout(pause),
  };
};

/** A button among the fields. */
const buttonPart = (state, send) => {
  const messages = numbered(send);
  let { focused, seen } = state;
  const el = button("", () => messages.send({ event: "press" }, seen), { class: "tk-plain" });
  return {
    el,
    show(next) {
      el.textContent = next.label;
      el.title = next.tooltip;
      el.hidden = next.hidden;
      seen = next.seen;
      if (next.focused === focused) return;
      focused = next.focused;
      if (el.isConnected) el.focus();
    },
  };
};

const PARTS = { text: textPart, choice: choicePart, ticks: ticksPart, button: buttonPart };

/** The fields of a panel, made when they are first used.
 * @returns `part(name)` is the element of a field, `commit()` sends texts that were typed and not sent. */
export const fieldsOf = (model, send) => {
  const parts = new Map();
  let drawn = false; // a panel that is drawn for the first time leaves the focus where it is
  const part = (name) => {
    const state = model.get("form")[name];
    if (!parts.has(name)) {
      const made = PARTS[state.kind](state, (content) => send({ kind: "field", name, ...content }), drawn);
      parts.set(name, made);
      made.show(state);
    }
    return parts.get(name);
  };
  return {
    part: (name) => part(name).el,
    has: (name) => name in model.get("form"),
    names: () => Object.keys(model.get("form")),
    commit() {
      for (const made of parts.values()) made.commit?.();
    },
    /** Call it after elements came into the page: texts get their height, and a new field the focus. */
    attached() {
      for (const made of parts.values()) made.attach?.();
    },
    show() {
      const form = model.get("form");
      for (const [name, made] of [...parts]) {
        if (form[name]) made.show(form[name]);
        else {
          made.stop?.();
          parts.delete(name);
        }
      }
    },
    /** Call it once the panel is in the page. */
    begin() {
      drawn = true;
      this.attached();
    },
    stop() {
      for (const made of parts.values()) made.stop?.();
    },
  };
};

/** Listen to traits, and draw them once. Returns a function that stops listening. */
export const listening = (model, handlers) => {
  const all = Object.entries(handlers);
  for (const [event, handler] of all) model.on(event, handler);
  for (const [event, handler] of all) if (event.startsWith("change:")) handler();
  return () => {
    for (const [event, handler] of all) model.off(event, handler);
  };
};

/** The frame of a panel: head, body, buttons, status and code. `body` returns the elements between head and buttons,
 * and handlers of traits. */
export const formPanel = (model, el, body) => {
  const send = (content) => model.send(content);
  const fields = fieldsOf(model, send);
  const press = (name) => {
    fields.commit(); // a press uses the texts that are seen
    send({ kind: "press", name });
  };
  beginPanel(model, el);
  const actions = element("div", { class: "tk-buttons tk-actions-bar" });
  const hideIdle = () => {
    for (const made of actions.children) {
      const focused = made === document.activeElement;
      made.hidden = model.get("idle").includes(made.textContent);
      if (focused && made.hidden) actions.firstElementChild.focus();
    }
  };
  const drawButtons = () => {
    const made = model.get("buttons").map(({ name, main }) => {
      const look = { Clear: "tk-plain", Cancel: "tk-plain" }[name] ?? "";
      return button(name, () => press(name), { class: main ? "tk-primary" : look });
    });
    actions.replaceChildren(...made);
    hideIdle();
  };
  const status = element("div", { class: "tk-status" });
  const code = codeBox(() => press("Copy code"));
  const { head = [], parts, after = [], handlers } = body({ fields, send, press, actions });
  el.append(
    element("div", { class: "tk-tool tk-form-head" }, element("b", {}, model.get("title")), ...head),
    ...parts,
    actions,
    status,
    ...after,
    code.el,
  );
  const stop = listening(model, {
    "change:form": () => {
      fields.show();
      fields.attached();
    },
    "change:buttons": drawButtons,
    "change:idle": hideIdle,
    "change:status": () => {
      status.innerHTML = model.get("status");
    },
    "change:code": () => code.show(model.get("code")),
    "msg:custom": async ({ kind, text }) => {
      if (kind === "copy") send({ kind: "copied", done: await copied(el, text) });
    },
    ...handlers,
  });
  // the host attaches the element after this function
  requestAnimationFrame(() => fields.begin());
  return () => {
    stop();
    fields.stop();
  };
};
