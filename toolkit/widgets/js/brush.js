// A histogram over time with a range on it: dragged with the pointer, or moved with two handles by keys.
const NS = "http://www.w3.org/2000/svg";
const HEIGHT = 64;

const part = (parent, name, attributes = {}) => {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent.appendChild(made);
  return made;
};

const time = (ms) => new Date(ms).toISOString().slice(0, 16).replace("T", " ") + " UTC";

export default {
  render({ model, el }) {
    const root = document.createElement("div");
    root.className = "tk-brush";
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", "Time range on the histogram");
    const field = document.createElement("div");
    field.className = "tk-brush-field";
    const svg = part(field, "svg", { preserveAspectRatio: "none", role: "img" });
    const caption = document.createElement("div");
    caption.className = "tk-note";
    root.append(field, caption);
    const handles = ["from", "until"].map((name, end) => {
      const handle = document.createElement("div");
      handle.className = "tk-handle";
      handle.tabIndex = 0;
      handle.setAttribute("role", "slider");
      handle.setAttribute("aria-label", `Time range ${name}`);
      handle.addEventListener("keydown", (event) => key(event, end));
      field.append(handle);
      return handle;
    });
    let range = null; // first and last bin, both included
    const kernel = messenger(model, el, root);
    const bins = () => model.get("counts").length;
    const clamp = (bin) => Math.max(0, Math.min(bins() - 1, bin));

    const read = () => {
      const chosen = model.get("selection");
      const starts = model.get("starts");
      const width = model.get("width");
      range = null;
      if (chosen.length === 2 && starts.length) {
        const bin = (ms) => clamp(Math.floor((ms - starts[0]) / width));
        range = [bin(chosen[0] ?? starts[0]), bin(chosen[1] ?? starts[starts.length - 1])];
      }
    };

    const draw = () => {
      const starts = model.get("starts");
      const counts = model.get("counts");
      root.style.display = counts.length ? "" : "none";
      if (!counts.length) return;
      const most = Math.max(...counts, 1);
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${counts.length} ${HEIGHT}`);
      const total = counts.reduce((sum, count) => sum + count, 0);
      const end = starts[starts.length - 1] + model.get("width");
      svg.setAttribute("aria-label", `${total} failures from ${time(starts[0])} to ${time(end)}`);
      const [first, last] = range ?? [0, counts.length - 1];
      if (range) part(svg, "rect", { x: first, y: 0, width: last - first + 1, height: HEIGHT, class: "tk-range" });
      counts.forEach((count, bin) => {
        const height = count ? Math.max(2, (count / most) * (HEIGHT - 2)) : 0;
        const inside = bin >= first && bin <= last;
        part(svg, "rect", {
          x: bin + 0.08, y: HEIGHT - height, width: 0.84, height, class: inside ? "tk-bar" : "tk-bar tk-outside",
        });
      });
      const until = starts[last] + model.get("width");
      caption.textContent = `${time(starts[first])} – ${time(until)}` + (range ? "" : " (all; drag to choose)");
      handles.forEach((handle, side) => {
        const bin = side ? last : first;
        handle.style.left = `${((bin + side) / counts.length) * 100}%`;
        handle.setAttribute("aria-valuemin", 0);
        handle.setAttribute("aria-valuemax", counts.length - 1);
        handle.setAttribute("aria-valuenow", bin);
        handle.setAttribute("aria-valuetext", time(side ? until : starts[first]));
      });
    };

    const commit = () => {
      const starts = model.get("starts");
      const chosen = range ? [starts[range[0]], starts[range[1]] + model.get("width") - 1] : [];
      kernel.send({ selection: chosen });
      draw();
    };

    const key = (event, end) => {
      const step = Math.max(1, Math.round(bins() / 10));
      const moves = {
        ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1,
        PageDown: -step, PageUp: step, Home: -bins(), End: bins(),
      };
      if (event.key in moves) {
        range = [...(range ?? [0, bins() - 1])];
        range[end] = clamp(range[end] + moves[event.key]);
        if (range[0] > range[1]) range[1 - end] = range[end];
      } else if (["Escape", "Delete", "Backspace"].includes(event.key)) range = null;
      else return;
      event.preventDefault();
      commit();
    };

    let begun = null;
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      return clamp(Math.floor(((event.clientX - box.left) / box.width) * bins()));
    };
    svg.addEventListener("pointerdown", (event) => {
      begun = at(event);
      range = [begun, begun];
      svg.setPointerCapture(event.pointerId);
      event.preventDefault();
      draw();
    });
    svg.addEventListener("pointermove", (event) => {
      if (begun === null) return;
      const now = at(event);
      range = [Math.min(begun, now), Math.max(begun, now)];
      draw();
    });
    svg.addEventListener("pointerup", () => {
      if (begun === null) return;
      begun = null;
      commit();
    });
    svg.addEventListener("pointercancel", () => {
      begun = null;
      read();
      draw();
    });

    const changed = () => {
      if (begun !== null || !kernel.confirmed()) return; // of a range that is no more
      read();
      draw();
    };
    changed();
    return kernel.listening({ "change:counts": changed, "change:selection": changed, "change:seq": changed });
  },
};
