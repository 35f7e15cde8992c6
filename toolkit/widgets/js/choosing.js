// A drop-down list. The choice is sent by name, which is right even when the list has changed meanwhile.
export default {
  render({ model, el }) {
    const id = uniqueId();
    const label = element("label", { for: id, class: "widget-label" });
    const select = element("select", { id });
    const field = element("div", { class: "tk-field tk-choosing" });
    field.append(label, select);
    const kernel = messenger(model, el, field);

    const named = () => {
      label.textContent = model.get("label");
    };
    const draw = () => {
      const value = kernel.confirmed() ? model.get("value") : select.value;
      const names = model.get("options");
      select.replaceChildren(...(names.includes(value) ? names : [value, ...names]).map((name) => new Option(name, name)));
      select.value = value;
    };
    select.addEventListener("change", () => kernel.send({ value: select.value }));
    named();
    draw();
    return kernel.listening({
      "change:label": named, "change:options": draw, "change:value": draw, "change:seq": draw,
    });
  },
};
