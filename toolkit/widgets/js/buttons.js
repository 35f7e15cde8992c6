// Buttons. A press carries the values of the panel's fields with it.
export default {
  render({ model, el }) {
    const row = element("div", { class: "tk-actions" });
    const main = model.get("main");
    model.get("names").forEach((name) => {
      const button = element("button", { type: "button", class: "jupyter-button" }, name);
      if (name === main) button.classList.add("tk-main-button");
      button.addEventListener("click", () => model.send({ press: name, fields: unconfirmed(el) }));
      row.append(button);
    });
    el.append(row);
  },
};
