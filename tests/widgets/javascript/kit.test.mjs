// What the modules of the panels compute, without a page. `node --test` runs it; tests/widgets/test_javascript.py does that.
import assert from "node:assert/strict";
import { test } from "node:test";

import { listed } from "../../../toolkit/widgets/js/board.js";
import {
  barOf,
  heightsOf,
  placeAfter,
  rangeAfter,
  timeIn,
  visibleRows,
} from "../../../toolkit/widgets/js/kit.js";

test("only visible rows and a few more are drawn, however many there are", () => {
  assert.deepEqual(visibleRows(0, 448, 56, 26), [0, 26]);
  assert.deepEqual(visibleRows(2_800_000 - 448, 448, 28, 100_000), [99_972, 100_000]);
  for (const top of [0, 12_345, 2_799_000]) {
    const [from, to] = visibleRows(top, 448, 28, 100_000);
    assert.ok(to - from <= 448 / 28 + 24);
    assert.ok(from * 28 <= top);
  }
  assert.deepEqual(visibleRows(0, 448, 28, 0), [0, 0]);
});

test("keys move within the list, and other keys do not move", () => {
  assert.equal(placeAfter("ArrowDown", -1, 3, 2), 0);
  assert.equal(placeAfter("ArrowUp", 0, 3, 2), 0);
  assert.equal(placeAfter("PageDown", 0, 3, 9), 2);
  assert.equal(placeAfter("End", 0, 3, 2), 2);
  assert.equal(placeAfter("x", 0, 3, 2), null);
});

test("a range stays in order when one end passes the other", () => {
  assert.deepEqual(rangeAfter([2, 5], 0, 7), [7, 7]);
  assert.deepEqual(rangeAfter([2, 5], 1, 1), [1, 1]);
  assert.deepEqual(rangeAfter([2, 5], 1, 4), [2, 4]);
});

test("a time is in the bar that begins before it", () => {
  assert.equal(barOf([0, 10, 30], 29), 1);
  assert.equal(barOf([0, 10, 30], -5), 0);
  assert.equal(barOf([0, 10, 30], 99), 2);
});

test("a single failure can be seen next to a burst, gaps and zeros have no height", () => {
  assert.deepEqual(heightsOf([0, 1, 1000, null], 40), [0, 1, 40, 0]);
  assert.deepEqual(heightsOf([5, 500], 40, 50), [4, 40]);
});

test("times are of the zone, also after clocks change", () => {
  const zones = [
    [0, 3_600_000, "CET"],
    [1_000_000_000, 7_200_000, "CEST"],
  ];
  assert.equal(timeIn(zones, 0), "1970-01-01 01:00 CET");
  assert.equal(timeIn(zones, 1_000_000_000), "1970-01-12 15:46 CEST");
});

test("a search lists the groups that it finds, with their numbers", () => {
  const groups = [
    { id: "a", count: 5 },
    { id: "b", count: 2 },
  ];
  assert.deepEqual(listed(groups, null), groups);
  assert.deepEqual(listed(groups, { b: 1 }), [{ id: "b", count: 2, hits: 1 }]);
});
