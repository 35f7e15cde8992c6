// One of several, as a list that drops down. What is chosen goes to the kernel in a message, by its name: it comes
// before the press of any button after it, and means the same when the list has changed meanwhile.
export default {
  render({ model, el }) {
    const id = `tk-choosing-${Math.random().toString(36).slice(2)}`;
    const label = document.createElement("label");
    label.htmlFor = id;
    label.className = "widget-label";
    const select = document.createElement("select");
    select.id = id;
    const field = document.createElement("div");
    field.className = "tk-field tk-choosing";
    field.append(label, select);
    el.append(field);

    let seq = model.get("seq");
    const named = () => {
      label.textContent = model.get("label");
    };
    const draw = () => {
      const ours = model.get("seq") < seq; // the kernel does not know yet what was chosen last
      const value = ours ? select.value : model.get("value");
      const names = model.get("options");
      select.replaceChildren(...(names.includes(value) ? names : [value, ...names]).map((name) => new Option(name, name)));
      select.value = value;
      if (!ours) seq = model.get("seq");
    };
    select.addEventListener("change", () => {
      seq += 1;
      model.send({ seq, value: select.value });
    });
    const handlers = { "change:label": named, "change:options": draw, "change:value": draw, "change:seq": draw };
    for (const [event, handler] of Object.entries(handlers)) model.on(event, handler);
    named();
    draw();
    return () => {
      for (const [event, handler] of Object.entries(handlers)) model.off(event, handler);
    };
  },
};
