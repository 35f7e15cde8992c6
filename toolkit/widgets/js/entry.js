// A line of text: what is typed is told after a short pause, and Enter sends the text with it, so that no letter
// can come after its Enter.
const PAUSE = 120; // milliseconds

export default {
  render({ model, el }) {
    const id = `tk-entry-${Math.random().toString(36).slice(2)}`;
    const label = document.createElement("label");
    label.htmlFor = id;
    label.className = "widget-label";
    label.textContent = model.get("label");
    const input = document.createElement("input");
    input.id = id;
    input.type = "text";
    input.autocomplete = "off";
    input.placeholder = model.get("hint");
    input.value = model.get("value");
    const field = document.createElement("div");
    field.className = "tk-field tk-entry";
    field.append(label, input);
    el.append(field);

    let pause = 0;
    const tell = () => {
      clearTimeout(pause);
      model.set("value", input.value);
      model.save_changes();
    };
    input.addEventListener("input", () => {
      clearTimeout(pause);
      pause = setTimeout(tell, PAUSE);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey) return;
      clearTimeout(pause);
      model.send({ kind: "enter", text: input.value });
      input.value = "";
      tell();
    });
    const changed = () => {
      if (document.activeElement !== input) input.value = model.get("value");
    };
    model.on("change:value", changed);
    return () => {
      clearTimeout(pause);
      model.off("change:value", changed);
    };
  },
};
