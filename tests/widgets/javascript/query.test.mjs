// What the similarity query computes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { wayShown } from "../../../toolkit/widgets/js/query.js";

test("the way of the query is shown, else the one that was looked at, else the first", () => {
  const ways = ["text", "vector", "stored"];
  assert.equal(wayShown(ways, "vector", "stored"), "vector");
  assert.equal(wayShown(ways, "", "stored"), "stored");
  assert.equal(wayShown(ways, "", ""), "text");
  assert.equal(wayShown(ways, "", "row"), "text");
});
