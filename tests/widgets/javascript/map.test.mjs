// What the map of vectors computes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { thinned, wholeView } from "../../../toolkit/widgets/js/map.js";

test("the view of all points uses the whole canvas in both directions", () => {
  const points = [0, 0, 10, 1];
  const view = wholeView(points, [600, 440]);
  assert.equal(view.x, 5);
  assert.equal(view.y, 0.5);
  assert.ok(Math.abs(view.across * 10 - 600 / 1.06) < 1e-9);
  assert.ok(Math.abs(view.up * 1 - 440 / 1.06) < 1e-9);
});

test("one point, and points on a line, have a view", () => {
  assert.deepEqual(wholeView([3, 4], [600, 440]), { x: 3, y: 4, across: 1, up: 1 });
  assert.deepEqual(wholeView([], [600, 440]), { x: 0, y: 0, across: 1, up: 1 });
});

test("a lasso keeps its order and has at most so many corners", () => {
  const path = [...Array(1001).keys()];
  const few = thinned(path, 400);
  assert.ok(few.length <= 400);
  assert.deepEqual(few.slice(0, 2), [0, 3]);
  assert.deepEqual(thinned([1, 2, 3], 400), [1, 2, 3]);
});
