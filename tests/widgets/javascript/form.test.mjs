// What the fields of panels compute, without a page.
import assert from "node:assert/strict";
import { test } from "node:test";

import { outline } from "../../../toolkit/widgets/js/conditions.js";
import { inPlace, numbered, optionAfter } from "../../../toolkit/widgets/js/form.js";

test("values that a person aims at keep their places, with the latest counts", () => {
  const shown = [
    { value: "a", count: " (1)", on: true },
    { value: "b", count: " (2)", on: false },
  ];
  const latest = [
    { value: "c", count: " (9)", on: false },
    { value: "b", count: " (3)", on: true },
  ];
  assert.deepEqual(inPlace(shown, latest), [
    { value: "a", count: "", on: false },
    { value: "b", count: " (3)", on: true },
  ]);
});

test("arrow keys mark the options in a circle", () => {
  assert.equal(optionAfter("ArrowDown", -1, 3), 0);
  assert.equal(optionAfter("ArrowDown", 2, 3), 0);
  assert.equal(optionAfter("ArrowUp", -1, 3), 2);
  assert.equal(optionAfter("ArrowUp", 0, 0), -1);
});

test("a state that follows an older message is out of date", () => {
  const sent = [];
  const messages = numbered((content) => sent.push(content));
  assert.ok(messages.current(0));
  messages.send({ event: "typed" }, 0);
  messages.send({ event: "changed" }, 0);
  assert.deepEqual(
    sent.map(({ number }) => number),
    [1, 2],
  );
  assert.ok(!messages.current(1));
  assert.ok(messages.current(2));
  messages.send({ event: "typed" }, 7); // another view of the panel sent five more
  assert.equal(sent[2].number, 8);
});

test("an arrangement of rows and groups has one outline", () => {
  const row = (name) => ({ name, kind: "condition" });
  const group = { name: "g-1", parts: [row("r-1"), { name: "g-2", parts: [row("r-2")] }] };
  assert.equal(outline(group), "g-1(r-1(),g-2(r-2()))");
});
