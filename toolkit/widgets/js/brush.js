// A histogram over time with a range on it: dragged with the pointer, or moved with two handles by keys.
const HEIGHT = 64;

// `zones` are the changes of clocks: from which time on, by how many milliseconds ahead of UTC, and the name of that.
const timeIn = (zones, ms) => {
  const [, ahead, name] = zones.findLast(([from]) => from <= ms) ?? zones[0] ?? [0, 0, "UTC"];
  return `${new Date(ms + ahead).toISOString().slice(0, 16).replace("T", " ")} ${name}`;
};

export default {
  render({ model, el }) {
    const root = element("div", { class: "tk-brush", role: "group", "aria-label": "Time range on the histogram" });
    const field = element("div", { class: "tk-brush-field" });
    const svg = drawn("svg", { preserveAspectRatio: "none", role: "img" });
    const caption = element("div", { class: "tk-note" });
    field.append(svg);
    root.append(field, caption);
    const handles = ["from", "until"].map((name, end) => {
      const handle = element("div", { class: "tk-handle", tabindex: 0, role: "slider", "aria-label": `Time range ${name}` });
      handle.addEventListener("keydown", (event) => key(event, end));
      field.append(handle);
      return handle;
    });
    let range = null; // first and last bin, both included
    let begun = null; // the bin where a drag began
    const kernel = messenger(model, el, root);
    const bins = () => model.get("counts").length;
    const endOf = (bin) => model.get("starts")[bin + 1] ?? model.get("starts")[bin] + model.get("width");
    const time = (ms) => timeIn(model.get("zones"), ms);
    const clamp = (bin) => Math.max(0, Math.min(bins() - 1, bin));

    const read = () => {
      const chosen = model.get("selection");
      const starts = model.get("starts");
      range = null;
      if (chosen.length === 2 && starts.length) {
        const bin = (ms) => clamp(starts.findLastIndex((start) => start <= ms)); // days can have 23 or 25 hours
        range = [bin(chosen[0] ?? starts[0]), bin(chosen[1] ?? starts[starts.length - 1])];
      }
    };

    // what is chosen, also if it begins or ends within a bar; until the kernel confirms it, the bars that are marked
    const chosenTimes = () => {
      if (!range) return [];
      if (begun === null && kernel.confirmed()) return model.get("selection");
      const starts = model.get("starts");
      return [starts[range[0]], endOf(range[1]) - 1];
    };

    const draw = () => {
      const starts = model.get("starts");
      const counts = model.get("counts");
      root.style.display = counts.length ? "" : "none";
      if (!counts.length) return;
      const most = model.get("limit") || Math.max(...counts, 1);
      svg.replaceChildren();
      svg.setAttribute("viewBox", `0 0 ${counts.length} ${HEIGHT}`);
      const total = counts.reduce((sum, count) => sum + count, 0);
      const end = endOf(counts.length - 1);
      svg.setAttribute("aria-label", `${total} failures from ${time(starts[0])} to ${time(end)}`);
      const [first, last] = range ?? [0, counts.length - 1];
      if (range) svg.append(drawn("rect", { x: first, y: 0, width: last - first + 1, height: HEIGHT, class: "tk-range" }));
      const gaps = model.get("gaps");
      field.querySelectorAll(".tk-gap").forEach((area) => area.remove());
      gaps.forEach((inGap, bin) => {
        const place = `left: ${(bin / counts.length) * 100}%; width: ${100 / counts.length}%`;
        if (inGap) field.append(element("div", { class: "tk-gap", style: place })); // a stretched SVG distorts hatching
      });
      const parts = model.get("series").length ? model.get("series") : [{ counts }];
      counts.forEach((count, bin) => {
        const outside = bin >= first && bin <= last ? "" : " tk-outside";
        const high = Math.min(1, Math.max(count / most, 0.03)) * (HEIGHT - 2);
        let y = HEIGHT;
        for (const { colour, counts: own } of parts) {
          const height = own[bin] && (own[bin] / count) * high;
          y -= height;
          const style = colour === undefined ? "" : `fill: var(--tk-s${colour})`;
          if (height) svg.append(drawn("rect", { x: bin + 0.08, y, width: 0.84, height, style, class: `tk-bar${outside}` }));
        }
        if (count > most) svg.append(drawn("rect", { x: bin, y: 0, width: 1, height: 4, class: "tk-cut" }));
      });
      const until = endOf(last);
      let cut = counts.some((count) => count > most) ? `; bars are cut at ${Math.round(most)}` : "";
      if (gaps.some(Boolean)) cut += "; hatched: failures that expired before they were read are missing";
      const [chosenFrom, chosenUntil] = chosenTimes();
      let shown = `${time(starts[0])} – ${time(end)} (all; click or drag to choose)`;
      if (chosenFrom && chosenUntil) shown = `${time(chosenFrom)} – ${time(chosenUntil)}`;
      else if (chosenFrom) shown = `from ${time(chosenFrom)}`;
      else if (chosenUntil) shown = `until ${time(chosenUntil)}`;
      caption.textContent = shown + cut;
      handles.forEach((handle, side) => {
        const bin = side ? last : first;
        handle.style.left = `${((bin + side) / counts.length) * 100}%`;
        handle.setAttribute("aria-valuemin", 0);
        handle.setAttribute("aria-valuemax", counts.length - 1);
        handle.setAttribute("aria-valuenow", bin);
        handle.setAttribute("aria-valuetext", time((side ? chosenUntil : chosenFrom) || (side ? until : starts[first])));
      });
    };

    const commit = () => {
      const starts = model.get("starts");
      const chosen = range ? [starts[range[0]], endOf(range[1]) - 1] : [];
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

    let before = "";
    const at = (event) => {
      const box = svg.getBoundingClientRect();
      return clamp(Math.floor(((event.clientX - box.left) / box.width) * bins()));
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
      const now = at(event);
      range = [Math.min(begun, now), Math.max(begun, now)];
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

    const changed = () => {
      if (begun !== null || !kernel.confirmed()) return; // its range was replaced meanwhile
      read();
      draw();
    };
    changed();
    return kernel.listening({ "change:counts": changed, "change:selection": changed, "change:seq": changed });
  },
};
