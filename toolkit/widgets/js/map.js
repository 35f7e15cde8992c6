// Points on a canvas: panned, zoomed, read and chosen; a lasso goes to the kernel, which knows what is inside.
import { filterEditor } from "./conditions.js";
import { formPanel } from "./form.js";
import { button, element } from "./kit.js";

const HEIGHT = 440;
const NEAR = 9; // pixels from the pointer to a point that it means
const MOST = 400; // corners of a lasso
const MARGIN = 1.06; // of the range of the points, so that none is cut at the edge
const SHADES = 7; // colours of the scale in the style
const NONE = 255; // a point without a value
const CLEAR = 5; // pixels of a point from which on its shape is seen; smaller ones are squares, which are drawn faster

// Corners of the shapes of values in a square of side 1, in the order of `plot_vector_map`.
const CIRCLE = [...Array(12).keys()].map((n) => [
  (1 + Math.cos((n * Math.PI) / 6)) / 2,
  (1 + Math.sin((n * Math.PI) / 6)) / 2,
]);
const SHAPES = [
  CIRCLE,
  [
    [0, 0],
    [1, 0],
    [1, 1],
    [0, 1],
  ],
  [
    [0.5, 0],
    [1, 1],
    [0, 1],
  ],
  [
    [0.5, 0],
    [1, 0.5],
    [0.5, 1],
    [0, 0.5],
  ],
  [
    [0, 0],
    [1, 0],
    [0.5, 1],
  ],
  [
    [1, 0],
    [1, 1],
    [0, 0.5],
  ],
  [
    [0, 0],
    [1, 0.5],
    [0, 1],
  ],
  [
    [0.5, 0],
    [1, 0.38],
    [0.81, 1],
    [0.19, 1],
    [0, 0.38],
  ],
  CIRCLE,
];
const CROSS = [
  [0.35, 0],
  [0.65, 0],
  [0.65, 0.35],
  [1, 0.35],
  [1, 0.65],
  [0.65, 0.65],
  [0.65, 1],
  [0.35, 1],
  [0.35, 0.65],
  [0, 0.65],
  [0, 0.35],
  [0.35, 0.35],
];

const floats = (view) =>
  new Float32Array(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
const bytes = (view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength);

/** The view that shows all points. The whole canvas is used: both directions have their own scale.
 * @param {ArrayLike<number>} points two numbers per point
 * @param {[number, number]} size width and height in pixels
 * @returns {{x: number, y: number, across: number, up: number}} the middle, and pixels per unit in both directions */
export const wholeView = (points, [width, height]) => {
  const low = [Infinity, Infinity];
  const high = [-Infinity, -Infinity];
  for (let i = 0; i < points.length; i += 1) {
    low[i % 2] = Math.min(low[i % 2], points[i]);
    high[i % 2] = Math.max(high[i % 2], points[i]);
  }
  if (!points.length) return { x: 0, y: 0, across: 1, up: 1 };
  const span = [0, 1].map((way) => (high[way] - low[way]) * MARGIN);
  return {
    x: (low[0] + high[0]) / 2,
    y: (low[1] + high[1]) / 2,
    across: span[0] ? width / span[0] : 1,
    up: span[1] ? height / span[1] : 1,
  };
};

/** Some corners of a lasso, in order, at most this number.
 * @template T
 * @param {T[]} path
 * @param {number} most
 * @returns {T[]} */
export const thinned = (path, most) => {
  const step = Math.max(1, Math.ceil(path.length / most));
  return path.filter((_, number) => number % step === 0);
};

/** The canvas with the points, the buttons of the view, and the legend. */
const pointMap = (model) => {
  const begun = performance.now();
  const send = (content) => model.send(content);
  const root = element("div", { class: "tk-map" });
  const bar = element("div", {
    class: "tk-buttons tk-map-bar",
    role: "group",
    "aria-label": "View of the map",
  });
  const field = element("div", { class: "tk-map-field" });
  const canvas = element("canvas", {
    tabindex: 0,
    role: "application",
    "aria-roledescription": "map of vectors",
    "aria-label": `${model.get("described")} Arrows move, plus and minus zoom, 0 shows all, Enter chooses the point in the middle.`,
  });
  const tip = element("div", { class: "tk-map-tip", hidden: "", "aria-hidden": "true" });
  const said = element("div", { class: "tk-note tk-map-said", role: "status" });
  const key = element("ul", { class: "tk-map-key", "aria-label": "Colours and shapes" });
  field.append(canvas, tip);
  root.append(field, said, key);
  const pen = canvas.getContext("2d");

  let points = new Float32Array();
  let order = []; // positions of points, those of one colour together
  let lasso = null; // corners, in pixels
  let dragged = null;
  let lassoing = false;
  let view = wholeView([], [1, 1]); // the middle, and pixels per unit
  let all = view; // the view of all points
  let pointed = -1;
  let texts = new Map(); // of points, as the kernel described them
  let palette = { series: [], shades: [] };

  const size = () => [canvas.clientWidth || 600, HEIGHT];
  const whole = () => wholeView(points, size());
  const place = (i) => {
    const [width, height] = size();
    return [
      (points[2 * i] - view.x) * view.across + width / 2,
      (view.y - points[2 * i + 1]) * view.up + height / 2,
    ];
  };
  const unit = ([x, y]) => {
    const [width, height] = size();
    return [(x - width / 2) / view.across + view.x, view.y - (y - height / 2) / view.up];
  };
  // how far the view is zoomed into the whole map
  const zoomed = () => view.across / all.across;

  const sort = () => {
    const colours = bytes(model.get("colours"));
    const count = points.length / 2;
    const groups = new Map();
    for (let i = 0; i < count; i += 1) {
      const colour = colours[i] ?? 0;
      if (!groups.has(colour)) groups.set(colour, []);
      groups.get(colour).push(i);
    }
    // points without a value below all others
    order = [...groups].sort(([a], [b]) => (b === NONE) - (a === NONE) || a - b);
  };
  const paint = () => {
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue(name).trim();
    palette = {
      series: [...Array(9).keys()].map((number) => read(`--tk-s${number}`)),
      shades: [...Array(SHADES).keys()].map((number) => read(`--tk-h${number}`)),
      ink: read("--tk-ink"),
      line: read("--tk-line"),
      focus: read("--tk-focus"),
      paper: read("--tk-paper"),
    };
  };
  const colour = (number) => {
    if (number === NONE) return palette.line;
    if (model.get("scaled"))
      return palette.shades[Math.min(SHADES - 1, Math.floor((number / NONE) * SHADES))];
    return palette.series[Math.min(8, number)];
  };

  const corners = (number) => {
    if (model.get("scaled")) return CIRCLE;
    return number === NONE ? CROSS : SHAPES[Math.min(8, number)];
  };

  const ring = (i, radius, width, style) => {
    const [x, y] = place(i);
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
    pen.lineWidth = width;
    pen.strokeStyle = style;
    pen.stroke();
  };

  const draw = () => {
    const [width, height] = size();
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const count = points.length / 2;
    const chosen = bytes(model.get("selected_points"));
    const some = chosen.includes(1);
    const [least, most] = count > 20000 ? [2, 6] : count > 3000 ? [3, 6] : [6, 12];
    const side = Math.min(most, least * Math.max(1, Math.sqrt(zoomed())));
    for (const dim of some ? [true, false] : [false]) {
      pen.globalAlpha = dim ? 0.22 : count > 20000 ? 0.75 : 0.9;
      for (const [number, group] of order) {
        pen.fillStyle = colour(number);
        const shape = corners(number);
        for (const i of group) {
          if (some && Boolean(chosen[i]) === dim) continue;
          const x = (points[2 * i] - view.x) * view.across + width / 2;
          const y = (view.y - points[2 * i + 1]) * view.up + height / 2;
          if (x > -side && y > -side && x < width + side && y < height + side) {
            if (side < CLEAR) {
              pen.fillRect(x - side / 2, y - side / 2, side, side);
              continue;
            }
            pen.beginPath();
            for (const [across, down] of shape)
              pen.lineTo(x + (across - 0.5) * side, y + (down - 0.5) * side);
            pen.fill();
          }
        }
      }
    }
    pen.globalAlpha = 1;
    model.get("hits").forEach((i) => {
      ring(i, 7, 4, palette.paper);
      ring(i, 7, 2, palette.ink);
    });
    if (pointed >= 0) ring(pointed, 6, 2, palette.focus);
    if (canvas.matches(":focus-visible")) {
      // what Enter chooses
      pen.strokeStyle = palette.ink;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(width / 2 - 9, height / 2);
      pen.lineTo(width / 2 + 9, height / 2);
      pen.moveTo(width / 2, height / 2 - 9);
      pen.lineTo(width / 2, height / 2 + 9);
      pen.stroke();
    }
    if (lasso) {
      pen.beginPath();
      for (const corner of lasso) pen.lineTo(...corner);
      pen.closePath();
      pen.setLineDash([5, 4]);
      pen.lineWidth = 2;
      pen.strokeStyle = palette.focus;
      pen.stroke();
      pen.setLineDash([]);
    }
    if (canvas.dataset.painted === undefined && count)
      canvas.dataset.painted = (performance.now() - begun).toFixed(0);
    canvas.dataset.points = count;
    canvas.dataset.shapes = side >= CLEAR;
    canvas.dataset.view = [view.x, view.y, view.across, view.up].map((part) => part.toPrecision(6)).join(" ");
  };
  let frame = 0;
  const later = () => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(draw);
  };

  const name = () => {
    key.replaceChildren(
      ...model.get("legend").map((text, place) => {
        const number = place === model.get("none") ? NONE : place;
        const item = element("li");
        const swatch = element("i", { "aria-hidden": "true" });
        if (model.get("scaled")) swatch.className = "tk-map-scale";
        else {
          swatch.style.background = number === NONE ? "var(--tk-line)" : `var(--tk-s${Math.min(8, number)})`;
          swatch.style.clipPath = `polygon(${corners(number).map(([x, y]) => `${100 * x}% ${100 * y}%`)})`;
        }
        item.append(swatch, element("span", {}, text));
        return item;
      }),
    );
  };

  const nearest = (x, y, reach) => {
    let best = -1;
    let least = reach * reach;
    for (let i = 0; i < points.length / 2; i += 1) {
      const dx = (points[2 * i] - view.x) * view.across + size()[0] / 2 - x;
      const dy = (view.y - points[2 * i + 1]) * view.up + size()[1] / 2 - y;
      const distance = dx * dx + dy * dy;
      if (distance < least) [best, least] = [i, distance];
    }
    return best;
  };
  const tell = () => {
    const text = pointed >= 0 ? (texts.get(pointed) ?? "…") : "";
    tip.hidden = !text || canvas.matches(":focus-visible");
    tip.textContent = said.textContent = text;
    if (pointed < 0) return;
    const [x, y] = place(pointed);
    tip.style.left = `${Math.min(x + 12, Math.max(0, size()[0] - 260))}px`;
    // above the point if there is no room below it
    const height = tip.offsetHeight;
    tip.style.top = `${y > HEIGHT - height - 20 ? y - height - 8 : y + 12}px`;
  };
  const point = (i) => {
    if (i === pointed) return;
    pointed = i;
    if (i >= 0 && !texts.has(i)) send({ kind: "point", position: i });
    tell();
    later();
  };

  const zoom = (factor, [x, y] = size().map((length) => length / 2)) => {
    const before = unit([x, y]);
    const wanted = Math.max(0.5, Math.min(5000, zoomed() * factor));
    view.across = all.across * wanted;
    view.up = all.up * wanted;
    const after = unit([x, y]);
    view.x += before[0] - after[0];
    view.y += before[1] - after[1];
    tell();
    later();
  };
  const reset = () => {
    all = whole();
    view = { ...all };
    tell();
    later();
  };

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    dragged = { from: at(event), at: at(event), moved: false };
    if (lassoing || event.shiftKey) lasso = [at(event)];
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = at(event);
    if (!dragged) {
      point(nearest(...now, NEAR));
      return;
    }
    dragged.moved ||= Math.hypot(now[0] - dragged.from[0], now[1] - dragged.from[1]) > 4;
    if (lasso) lasso.push(now);
    else if (dragged.moved) {
      view.x -= (now[0] - dragged.at[0]) / view.across;
      view.y += (now[1] - dragged.at[1]) / view.up;
    }
    dragged.at = now;
    tell();
    later();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!dragged) return;
    const { moved } = dragged;
    const path = lasso;
    dragged = lasso = null;
    if (!moved) {
      const i = nearest(...at(event), NEAR);
      point(i);
      if (i >= 0) send({ kind: "choose", position: i });
    } else if (path) {
      send({ kind: "lasso", path: thinned(path, MOST).map(unit), add: event.ctrlKey || event.metaKey });
    }
    later();
  });
  canvas.addEventListener("pointercancel", () => {
    dragged = lasso = null;
    later();
  });
  canvas.addEventListener("pointerleave", () => dragged || point(-1));
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (document.activeElement !== canvas) return; // the page scrolls until somebody clicks the map
      zoom(Math.exp(-event.deltaY / 300), at(event));
      event.preventDefault();
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [width, height] = size();
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key in steps) {
      view.x += (steps[event.key][0] * width) / 12 / view.across;
      view.y += (steps[event.key][1] * height) / 12 / view.up;
    } else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") reset();
    else if (event.key === "Escape") send({ kind: "clear" });
    else if (event.key === "Enter" && !event.shiftKey) {
      const i = nearest(width / 2, height / 2, Infinity);
      if (i >= 0) send({ kind: "choose", position: i });
    } else return;
    event.preventDefault();
    point(nearest(width / 2, height / 2, Infinity));
    tell();
    later();
  });
  canvas.addEventListener("focus", later);
  canvas.addEventListener("blur", later);

  const lassoButton = button(
    "Lasso",
    () => {
      lassoing = !lassoing;
      lassoButton.setAttribute("aria-pressed", String(lassoing));
      lassoButton.classList.toggle("tk-primary", lassoing);
      canvas.classList.toggle("tk-lassoing", lassoing);
    },
    { "aria-pressed": "false" },
  );
  bar.append(
    lassoButton,
    button("Zoom in", () => zoom(1.5)),
    button("Zoom out", () => zoom(1 / 1.5)),
    button("Show all", reset),
  );

  const load = () => {
    points = floats(model.get("points"));
    texts = new Map();
    pointed = -1;
    sort();
    reset();
  };
  const recolour = () => {
    texts = new Map(); // they name the value of the colour
    sort();
    name();
    later();
  };
  const described = ({ kind, position, text }) => {
    if (kind !== "point") return;
    texts.set(position, text);
    if (position === pointed) tell();
  };
  const themed = () => {
    paint();
    later();
  };
  const handlers = {
    "change:points": load,
    "change:colours": recolour,
    "change:legend": recolour,
    "change:selected_points": later,
    "change:hits": later,
    "msg:custom": described,
  };
  for (const [event, handler] of Object.entries(handlers)) model.on(event, handler);
  const watched = new MutationObserver(themed);
  const attributeFilter = ["data-jp-theme-light", "data-jp-theme-name", "class", "data-theme"];
  for (const part of [document.documentElement, document.body])
    watched.observe(part, { attributes: true, attributeFilter });
  const sized = new ResizeObserver(() => {
    if (!canvas.clientWidth) return;
    const before = zoomed();
    all = whole();
    view.across = all.across * before;
    view.up = all.up * before;
    paint();
    later();
  });
  load();
  name();
  paint();
  sized.observe(canvas);
  return {
    root,
    bar,
    stop() {
      cancelAnimationFrame(frame);
      watched.disconnect();
      sized.disconnect();
      for (const [event, handler] of Object.entries(handlers)) model.off(event, handler);
    },
  };
};

export default {
  render({ model, el }) {
    let map = { stop() {} };
    const stop = formPanel(model, el, ({ fields }) => {
      const about = element("div", { class: "tk-note tk-map-about" });
      const counts = element("div", { class: "tk-count", role: "status" });
      const shown = {
        "change:about": () => {
          about.textContent = model.get("about");
        },
        "change:counts": () => {
          counts.textContent = model.get("counts");
        },
      };
      if (!model.get("points").byteLength) {
        about.className = "tk-empty";
        return { head: [counts], parts: [about], handlers: shown };
      }
      map = pointMap(model);
      const tool = element("div", { class: "tk-map-tool" }, map.bar, fields.part("colour"));
      if (!model.get("conditions").possible)
        return { head: [counts], parts: [about, tool, map.root], handlers: shown };
      const editor = filterEditor(model, fields);
      const [text, ...rows] = editor.parts;
      const folded = element(
        "details",
        { class: "tk-folded" },
        element("summary", {}, "Filter as rows"),
        ...rows,
      );
      return {
        head: [counts],
        parts: [about, tool, map.root, text, folded],
        handlers: { ...shown, "change:conditions": editor.show },
      };
    });
    return () => {
      map.stop();
      stop();
    };
  },
};
