// JupyterLab listens for its shortcuts on the document, and treats a key pressed in a focused button, checkbox or
// list as one of them: "d d" deletes the cell. Keys pressed inside a panel are stopped here; only those that run
// cells, save, or open the command palette are passed on.
const passes = (event) => {
  const accelerated = event.ctrlKey || event.metaKey;
  if (event.key === "Enter") return event.shiftKey || event.altKey || accelerated;
  if (/^F\d+$/.test(event.key)) return true;
  return accelerated && ["s", "C", "P"].includes(event.key);
};

const keep = (event) => {
  if (!passes(event)) event.stopPropagation();
};

export default {
  render({ el }) {
    el.setAttribute("aria-hidden", "true");
    let panel = null;
    let frame = 0;
    const attach = () => {
      panel = el.closest(".tk-panel");
      if (panel) panel.addEventListener("keydown", keep);
      else frame = requestAnimationFrame(attach); // not in the page yet
    };
    attach();
    return () => {
      cancelAnimationFrame(frame);
      if (panel) panel.removeEventListener("keydown", keep);
    };
  },
};
