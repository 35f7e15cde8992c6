// A redrive: its steps, the plan, the options behind it, the confirmation, and what became of the entries.

import { formPanel } from "./form.js";
import { element } from "./kit.js";

const OPTIONS = ["action", "changed", "idempotent", "include"];
const LIMITS = ["canaries", "wave", "stop_above", "deadline"];

/** The widths of the parts of a meter, in percent.
 * @param {{count: number, kind: string}[]} meter
 * @returns {[string, number][]} kind and width; entries that were not sent stay empty */
export const widthsOf = (meter) => {
  const total = meter.reduce((sum, { count }) => sum + count, 0);
  const sent = meter.filter(({ kind }) => kind);
  return sent.map(({ count, kind }) => [kind, (count / total) * 100]);
};

const table = (label) =>
  element("div", { class: "tk-table", role: "group", "aria-label": label, tabindex: "0" });

const show = (box, markup) => {
  box.innerHTML = markup;
  box.hidden = !markup;
};

export default {
  render: ({ model, el }) =>
    formPanel(model, el, ({ fields }) => {
      const verdict = element("div", { class: "tk-count", role: "status" });
      const steps = element("ol", { class: "tk-redrive-steps" });
      const plan = table("Plan");
      const options = element(
        "details",
        { class: "tk-rules" },
        element("summary", {}, "Actions and limits"),
        element("div", { class: "tk-fields" }, ...LIMITS.map(fields.part)),
        element("div", { class: "tk-fields" }, ...OPTIONS.map(fields.part)),
      );
      const confirm = element("div", { class: "tk-confirm" });
      if (fields.has("confirm")) confirm.append(fields.part("confirm"));
      const bar = element("div", { class: "tk-meter", "aria-hidden": "true" });
      const counts = element("div", { class: "tk-meter-counts" });
      const outcome = table("Outcomes");
      const drawMeter = () => {
        const meter = model.get("meter");
        const parts = widthsOf(meter).map(([kind, width]) =>
          element("i", { class: `tk-${kind}`, style: `width: ${width}%` }),
        );
        bar.replaceChildren(...parts);
        const words = meter.map(({ word, count, kind }) =>
          element(
            "span",
            { class: kind === "bad" ? "tk-failed" : "" },
            element("b", {}, count.toLocaleString("en-US")),
            ` ${word}`,
          ),
        );
        counts.replaceChildren(...words);
        bar.hidden = !meter.length;
        counts.hidden = !meter.length;
      };
      return {
        head: [verdict],
        parts: [steps, bar, counts, plan, options, confirm],
        after: [outcome],
        handlers: {
          "change:verdict": () => {
            verdict.textContent = model.get("verdict");
          },
          "change:steps": () => {
            const items = model.get("steps").map(({ title, text, state }) =>
              element(
                "li",
                {
                  class: `tk-step-${state || "later"}`,
                  ...(state === "now" ? { "aria-current": "step" } : {}),
                },
                element("b", {}, title),
                element("span", { class: "tk-sub" }, text),
              ),
            );
            steps.replaceChildren(...items);
          },
          "change:groups": () => show(plan, model.get("groups")),
          "change:meter": drawMeter,
          "change:outcome": () => show(outcome, model.get("outcome")),
        },
      };
    }),
};
