const element = (name, attributes = {}, text = null) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
};

const uniqueId = () => `tk-${Math.random().toString(36).slice(2)}`;

// Calls functions on changes of the model; gives how to stop that.
const listening = (model, handlers) => {
  for (const [event, handler] of Object.entries(handlers)) model.on(event, handler);
  return () => {
    for (const [event, handler] of Object.entries(handlers)) model.off(event, handler);
  };
};

// What a person does in a control goes to the kernel in numbered messages. Those that the kernel has not confirmed yet
// go with the press of every button, too: a press takes the values it was clicked on, whatever arrives first.
const messenger = (model, field, flush = () => {}) => {
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
  field.classList.add("tk-tells");
  return {
    confirmed, // whether the kernel knows all that was done here
    send(content) {
      seq += 1;
      model.send({ ...content, seq });
      const { fields, ...own } = content; // what other controls tell is theirs to say again
      waiting.push({ ...own, seq });
    },
  };
};

const unconfirmed = (part) => [...(part.closest(".tk-panel") ?? part).querySelectorAll(".tk-tells")]
  .map((field) => field.tkWaiting()).filter(([, waiting]) => waiting.length);

