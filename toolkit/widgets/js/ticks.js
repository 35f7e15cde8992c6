// Several values out of many: a search field, and a checkbox for each visible value. Enter selects the first match; a
// button adds the text as it is typed. While the pointer or the focus is on the values, they keep their places, so that
// a click takes the value it was aimed at; counts follow, other values appear afterwards.
const PAUSE = 100; // milliseconds

const line = (counts, colour) => { // a small trend line; null is a count that is not known
  const most = Math.max(...counts, 1);
  const gaps = counts.flatMap((count, at) => (count === null ? [drawn("rect", { x: at, y: 0, width: 1, height: 16, class: "tk-gap" })] : []));
  const points = counts.map((count, at) => `${at},${15 - (count / most) * 14} ${at + 1},${15 - (count / most) * 14}`);
  const shape = drawn("polygon", { points: `0,16 ${points.join(" ")} ${counts.length},16`, style: `fill: var(--tk-s${colour})` });
  return drawn("svg", { viewBox: `0 0 ${counts.length} 16`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...gaps, shape);
};

export default {
  render({ model, el }) {
    const id = uniqueId();
    const field = element("div", { class: "tk-field tk-choices" });
    const head = element(model.get("searches") ? "label" : "div", { class: "widget-label" });
    const input = element("input", { id, type: "text", autocomplete: "off", spellcheck: "false" });
    const rows = element("div", { class: "tk-ticks", role: "group" });
    const literal = element("button", { type: "button", class: "jupyter-button tk-literal" });
    if (model.get("searches")) head.htmlFor = id;
    field.append(head, ...(model.get("searches") ? [input] : []), rows, literal);
    const kernel = messenger(model, el, field);
    let pause = 0;
    let visible = [];
    const held = { pointer: false, focus: false };

    const search = () => {
      clearTimeout(pause);
      kernel.send({ event: "typed", text: input.value });
    };
    const boxes = () => [...rows.querySelectorAll("input")].filter((box) => !box.closest("label").hidden);
    const stops = () => [input, ...boxes(), ...(literal.hidden ? [] : [literal])];

    const added = () => {
      const label = element("label");
      const box = element("input", { type: "checkbox" });
      box.addEventListener("change", () => kernel.send({ event: "ticked", value: label.value, on: box.checked }));
      const name = element("span");
      name.append("", element("small"));
      label.append(box, name);
      rows.append(label);
      return label;
    };
    const inPlace = (latest) => {
      const byValue = new Map(latest.map((row) => [row.value, row]));
      return visible.map((row) => byValue.get(row.value) ?? { ...row, count: "", on: false });
    };
    const hold = (how, on) => {
      const before = held[how];
      held[how] = on;
      if (before && !on) draw();
    };
    const draw = () => {
      head.textContent = model.get("label");
      rows.setAttribute("aria-label", `${model.get("label")}: values`);
      input.placeholder = model.get("hint");
      if (!kernel.confirmed()) return;
      const found = held.pointer || held.focus ? inPlace(model.get("rows")) : model.get("rows");
      visible = found;
      const labels = [...rows.children];
      while (labels.length < found.length) labels.push(added());
      const sought = Boolean(input.value.trim());
      labels.forEach((label, position) => { // reuse the same checkboxes, so that they keep the focus
        label.hidden = position >= found.length;
        if (label.hidden) return;
        const { value, text, title, count, on, spark, colour } = found[position];
        const [box, name] = label.children;
        label.value = value;
        label.title = title;
        label.classList.toggle("tk-first", sought && position === 0);
        box.checked = on;
        const number = name.lastChild;
        number.textContent = count;
        name.replaceChildren(...wrapping(text), number);
        label.querySelector("svg")?.remove();
        if (spark?.length) label.append(line(spark, colour));
      });
      const offered = model.get("literal");
      literal.hidden = !offered;
      literal.textContent = offered;
      if (document.activeElement?.closest("[hidden]") && field.contains(document.activeElement)) input.focus();
    };
    const take = (event) => {
      clearTimeout(pause);
      kernel.send({ event, text: input.value });
      input.value = "";
      input.focus();
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
    literal.addEventListener("click", () => take("literal"));
    field.addEventListener("keydown", (event) => {
      const stop = stops();
      const at = stop.indexOf(event.target);
      const moves = { ArrowDown: at + 1, ArrowUp: at - 1 };
      if (event.key === "Enter" && event.target === input && !event.shiftKey && !event.isComposing) {
        if (input.value.trim()) take("enter");
      } else if (event.key === "Escape" && input.value) {
        input.value = "";
        input.focus();
        search();
      } else if (event.key in moves && at >= 0) stop[Math.max(0, Math.min(stop.length - 1, moves[event.key]))].focus();
      else return;
      event.preventDefault();
    });
    draw();
    const end = kernel.listening({
      "change:rows": draw, "change:literal": draw, "change:label": draw, "change:seq": draw,
    });
    return () => {
      clearTimeout(pause);
      end();
    };
  },
};
