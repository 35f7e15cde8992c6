// A text field with completions. Letters are sent before the Enter after them; offers for an older text are ignored.
// While the pointer is on the offers, they stay, so that a click takes the one it was aimed at.
const PAUSE = 60; // milliseconds
const ROOM = 190; // pixels below the field that the list needs

export default {
  render({ model, el }) {
    const id = uniqueId();
    const follows = model.get("follows");
    const completes = model.get("completes");
    const label = element("label", { for: id, class: "widget-label" });
    const input = element(follows ? "textarea" : "input", {
      id, autocomplete: "off", autocapitalize: "off", spellcheck: "false", ...(follows ? { rows: 1 } : { type: "text" }),
      ...(completes ? { "aria-autocomplete": "list", "aria-controls": `${id}-list` } : {}),
      ...(!completes ? {} : follows ? { "aria-haspopup": "listbox" } : { role: "combobox", "aria-expanded": "false" }),
    });
    const list = element("div", { id: `${id}-list`, role: "listbox", class: "tk-offers", popover: "manual" });
    const field = element("div", { class: "tk-field tk-entry" });
    field.append(label, input, ...(completes ? [list] : []));

    let last = model.get("text"); // the last text the kernel received or set
    let wanted = false; // whether offers were requested
    let unsent = false; // letters not sent yet
    let held = false; // whether the pointer is on the offers
    let offers = [];
    let active = -1;
    let pause = 0;
    let frame = 0;

    const named = () => {
      label.textContent = model.get("label");
      list.setAttribute("aria-label", `${model.get("label")}: what can follow`);
      input.placeholder = model.get("hint");
    };

    const fit = () => {
      if (!follows) return;
      input.style.height = "auto";
      input.style.height = `${input.scrollHeight + 2}px`;
    };

    const report = (event) => {
      clearTimeout(pause);
      unsent = false;
      if (follows || event !== "typed") last = input.value;
      const head = input.value.slice(0, input.selectionStart);
      const fields = event === "submit" ? { fields: unconfirmed(el) } : {};
      kernel.send({ event, text: input.value, head, ...fields });
    };
    const kernel = messenger(model, el, field, () => input.value !== last && report("changed"));

    const mark = (chosen) => {
      active = chosen;
      [...list.children].forEach((option, number) => {
        option.setAttribute("aria-selected", String(number === active));
        if (number === active) option.scrollIntoView({ block: "nearest" });
      });
      if (active < 0) input.removeAttribute("aria-activedescendant");
      else input.setAttribute("aria-activedescendant", `${id}-${active}`);
    };

    const place = () => {
      const at = input.getBoundingClientRect();
      const below = window.innerHeight - at.bottom;
      const under = below > ROOM || below > at.top;
      list.style.left = `${at.left}px`;
      list.style.minWidth = `${Math.min(at.width, 320)}px`;
      list.style.maxWidth = `${window.innerWidth - at.left - 12}px`;
      list.style.maxHeight = `${Math.min(260, (under ? below : at.top) - 8)}px`;
      list.style.top = under ? `${at.bottom + 2}px` : "auto";
      list.style.bottom = under ? "auto" : `${window.innerHeight - at.top + 2}px`;
    };

    const show = (found) => {
      offers = found;
      list.replaceChildren(...offers.map(([shown], number) => {
        const option = element("div", { id: `${id}-${number}`, role: "option" });
        option.textContent = shown;
        return option;
      }));
      mark(-1);
      list.classList.toggle("tk-open", offers.length > 0);
      if (completes && !follows) input.setAttribute("aria-expanded", String(offers.length > 0));
      if (!list.showPopover || !list.isConnected) return; // then the style draws it below the field
      if (list.matches(":popover-open") !== offers.length > 0) list.togglePopover();
      if (offers.length) place();
    };
    const close = () => {
      wanted = held = false;
      if (list.children.length) show([]);
    };
    const ask = () => {
      if (!completes) return;
      wanted = true;
      report("typed");
    };

    const pick = (number) => {
      const [, head, tail] = offers[number];
      input.value = head + tail;
      input.setSelectionRange(head.length, head.length);
      fit();
      close();
      if (follows) ask(); // request what can follow
      else report("changed");
    };

    input.addEventListener("input", () => {
      fit();
      wanted = unsent = true;
      held = false; // what is typed is shown, wherever the pointer rests
      clearTimeout(pause);
      if (completes || follows) pause = setTimeout(() => report("typed"), PAUSE);
    });
    input.addEventListener("click", ask);
    input.addEventListener("blur", () => {
      close();
      if (unsent || input.value !== last) report("changed");
    });
    input.addEventListener("keydown", (event) => {
      if (event.isComposing || event.ctrlKey || event.metaKey) return;
      const count = list.children.length;
      if (event.key === "Enter" && !event.shiftKey && !event.altKey) {
        if (active >= 0) pick(active);
        else {
          close();
          report("submit");
        }
      } else if (event.key === "Escape" && count) close();
      else if (event.key === "ArrowDown" && count) mark((active + 1) % count);
      else if (event.key === "ArrowUp" && count) mark((active < 0 ? count : active) - 1);
      else if (event.key === "ArrowDown" && (!follows || input.selectionStart === input.value.length)) ask();
      else {
        if (/^(Arrow|Home|End)/.test(event.key)) close();
        return;
      }
      event.preventDefault();
    });
    list.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
    list.addEventListener("pointermove", () => { held = true; });
    list.addEventListener("pointerleave", () => {
      held = false;
      answered();
    });
    list.addEventListener("click", (event) => {
      const number = [...list.children].indexOf(event.target.closest("[role=option]"));
      if (number >= 0) pick(number);
    });

    const scrolled = () => list.children.length && place();
    window.addEventListener("scroll", scrolled, { capture: true, passive: true });
    const sized = new ResizeObserver(fit);
    sized.observe(field);

    const changed = () => {
      if (unsent || !kernel.confirmed()) return; // the text has changed meanwhile
      last = model.get("text");
      if (input.value !== last) {
        input.value = last;
        fit();
      }
    };
    const answered = () => {
      if (!held && !unsent && kernel.confirmed()) show(wanted && document.activeElement === input ? model.get("offers") : []);
    };
    const attend = () => {
      if (!model.get("wanted")) return;
      if (!input.isConnected) {
        frame = requestAnimationFrame(attend); // not in the page yet
        return;
      }
      input.focus();
      model.set("wanted", false);
      model.save_changes();
    };
    const stop = kernel.listening({
      "change:text": changed, "change:seq": answered, "change:wanted": attend, "change:label": named, "change:hint": named,
    });
    named();
    input.value = model.get("text");
    attend();
    return () => {
      clearTimeout(pause);
      cancelAnimationFrame(frame);
      sized.disconnect();
      window.removeEventListener("scroll", scrolled, { capture: true });
      stop();
    };
  },
};
