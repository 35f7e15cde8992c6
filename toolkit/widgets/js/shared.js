const element = (name, attributes = {}, text = null) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
};

const drawn = (name, attributes = {}, ...parts) => { // of an SVG
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...parts);
  return made;
};

// A text with places after its slashes at which a line of an address may end.
const wrapping = (text) => text.split(/(?<=[\w.~%-]\/)(?!\/|$)/).flatMap((part, at) => (at ? [element("wbr"), part] : [part]));

const uniqueId = () => `tk-${Math.random().toString(36).slice(2)}`;

// Draws a control's field, with its problem and remark below it. User actions are sent to the kernel as numbered messages.
// Unconfirmed ones are also sent with the press of any button, which then acts on the values shown when it was clicked.
const messenger = (model, el, field, flush = () => {}) => {
  let seq = model.get("seq");
  let waiting = [];
  const confirmed = () => {
    seq = Math.max(seq, model.get("seq"));
    waiting = waiting.filter((message) => message.seq > model.get("seq"));
    return !waiting.length;
  };
  field.tkWaiting = () => {
    flush();
    confirmed();
    return [model.get("key"), [...waiting]];
  };
  field.classList.add("tk-sends");
  const below = element("div");
  const explain = () => {
    const [problem, remark] = [model.get("problem"), model.get("remark")];
    const line = (text, kind, role) => {
      const made = element("div", { class: kind, role });
      made.append(...wrapping(text));
      return [made];
    };
    below.replaceChildren(
      ...(problem ? line(`⚠ ${problem}`, "tk-problem", "alert") : []),
      ...(remark ? line(remark, "tk-note", "status") : []),
    );
  };
  explain();
  el.append(field, below);
  return {
    listening(handlers) { // returns a function that stops listening
      const all = Object.entries({ "change:problem": explain, "change:remark": explain, ...handlers });
      all.forEach(([event, handler]) => model.on(event, handler));
      return () => all.forEach(([event, handler]) => model.off(event, handler));
    },
    confirmed, // whether the kernel has confirmed every message
    send(content) {
      seq += 1;
      model.send({ ...content, seq });
      const { fields, ...own } = content; // other controls send their messages again
      waiting.push({ ...own, seq });
    },
  };
};

const unconfirmed = (part) => [...(part.closest(".tk-panel") ?? part).querySelectorAll(".tk-sends")]
  .map((field) => field.tkWaiting()).filter(([, waiting]) => waiting.length);

