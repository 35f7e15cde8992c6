// The package @upstash/vector against a dense index of two dimensions.
import { Index } from "@upstash/vector";
import { runSteps } from "./steps.mjs";

const index = new Index({ retry: false }); // address and token are in the environment
const space = index.namespace("numbers");

async function rangeOfAll() {
  const ids = [];
  let cursor = 0;
  do {
    const page = await index.range({ cursor, limit: 2 });
    ids.push(...page.vectors.map((vector) => vector.id));
    cursor = page.nextCursor;
  } while (cursor !== "");
  return ids;
}

async function resumable() {
  const query = await index.resumableQuery({ vector: [1, 0], topK: 1, maxIdle: 60 });
  const more = await query.fetchNext(2);
  const stopped = await query.stop();
  return { first: query.result.length, more: more.length, stopped };
}

await runSteps({
  upsertOne: () => index.upsert({ id: 1, vector: [1, 0], metadata: { kind: "number" } }),
  upsertMany: () => index.upsert([{ id: 2, vector: [0, 1] }, { id: "three", vector: [1, 1] }]),
  range: rangeOfAll,
  fetch: () => index.fetch([1, "2", 4]),
  fetchByPrefix: () => index.fetch({ prefix: "th" }),
  update: () => index.update({ id: 2, metadata: { changed: true } }),
  query: () => index.query({ vector: [1, 0], topK: 1, includeMetadata: true }),
  queryMany: () => index.queryMany([{ vector: [1, 0], topK: 1 }, { vector: [0, 1], topK: 1 }]),
  filtered: () => index.query({ vector: [1, 0], topK: 3, filter: "kind = 'number'" }),
  resumable,
  fetchByBoth: () => index.fetch({ ids: ["1"], prefix: "t" }),
  deleteByBoth: () => index.delete({ ids: ["1"], prefix: "t" }),
  deleteByNothing: () => index.delete({}),
  deleteOne: () => index.delete(1),
  deleteMany: () => index.delete([2, 5]),
  deleteByIds: async () => {
    await index.upsert({ id: 6, vector: [1, 0] });
    return index.delete({ ids: [6, "6"] });
  },
  deleteByPrefix: () => index.delete({ prefix: "th" }),
  deleteByFilter: async () => {
    await index.upsert({ id: 7, vector: [1, 0], metadata: { kind: "number" } });
    return index.delete({ filter: "kind = 'number'" });
  },
  wrongDimension: () => index.upsert({ id: 8, vector: [1] }),
  inNamespace: () => space.upsert({ id: 1, vector: [1, 0] }),
  namespaces: () => index.listNamespaces(),
  fetchInNamespace: () => space.fetch([1]),
  deleteNamespace: () => index.deleteNamespace("numbers"),
  info: () => index.info(),
  reset: () => index.reset(),
});
