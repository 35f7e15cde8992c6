// The package @upstash/qstash: messages, groups, schedules, logs and the dead letter queue.
import { Client } from "@upstash/qstash";
import { runSteps, waitFor } from "./steps.mjs";

const destination = process.env.DESTINATION; // responds 200, below /fails 500
const client = new Client({ retry: false, enableTelemetry: false });
console.error = () => {}; // the package reports errors there, too
const { dlq, messages, schedules, urlGroups } = client;
const later = { delay: "1d" };

async function failed(...publishes) {
  const sent = await Promise.all(
    publishes.map((options) => client.publish({ retries: 0, ...options, url: `${destination}${options.url}` })),
  );
  const ids = new Set(sent.map((message) => message.messageId));
  await waitFor(async () => {
    const entries = (await dlq.listMessages({ count: 100 })).messages;
    return entries.filter((entry) => ids.has(entry.messageId)).length === ids.size;
  });
}

const pathsOf = (page) => page.messages.map((entry) => new URL(entry.url).pathname).sort();

await runSteps({
  // messages
  cancelOne: async () => messages.cancel((await client.publish({ url: `${destination}/a`, ...later })).messageId),
  cancelMany: async () => {
    const sent = await client.batchJSON(
      ["/a", "/b"].map((path) => ({ url: `${destination}${path}`, body: { path }, ...later })),
    );
    return messages.cancel(sent.map((message) => message.messageId));
  },
  cancelByHostAndPath: async () => {
    const paths = ["/a", "/b", "/c", "/d"];
    for (const path of paths) await client.publish({ url: `${destination}${path}`, ...later });
    const host = [new URL(destination).host, "elsewhere.example"];
    const none = await messages.cancel({ filter: { host: "elsewhere.example" } });
    const some = await messages.cancel({ filter: { host, path: ["/a", "/b"] } });
    const hostname = await messages.cancel({ filter: { host: new URL(destination).hostname, path: "/c" } });
    const rest = await messages.cancel({ all: true });
    return [none, some, hostname, rest].map((response) => response.cancelled);
  },
  messageWithoutBody: async () => {
    const { messageId } = await client.publish({ url: `${destination}/empty`, ...later });
    const message = await messages.get(messageId);
    await messages.delete(messageId);
    return message;
  },
  // URL groups
  groups: async () => {
    const group = "js-group";
    await urlGroups.addEndpoints({ name: group, endpoints: [{ name: "one", url: `${destination}/one` }] });
    await urlGroups.addEndpoints({ name: group, endpoints: [{ name: "two", url: `${destination}/two` }] });
    await urlGroups.addEndpoints({ name: group, endpoints: [{ name: "again", url: `${destination}/one` }] });
    const shown = await urlGroups.get(group);
    const sent = await client.publishJSON({ urlGroup: group, body: {}, ...later });
    await messages.cancel({ filter: { urlGroup: [group] } });
    await urlGroups.removeEndpoints({ name: group, endpoints: [{ name: "again" }] });
    const after = await urlGroups.get(group);
    await urlGroups.delete(group);
    return {
      endpoints: shown.endpoints.map(({ name, url }) => [name, new URL(url).pathname]),
      sent: sent.length,
      after: after.endpoints.map(({ name }) => name),
    };
  },
  // schedules
  editSchedule: async () => {
    const scheduleId = "js-schedule";
    const cron = "0 0 1 1 *";
    await schedules.create({ scheduleId, destination: `${destination}/first`, cron, body: "payload", label: "old" });
    const before = await schedules.get(scheduleId);
    await schedules.create({ scheduleId, destination: `${destination}/second`, cron: "0 1 1 1 *" });
    const after = (await schedules.list()).filter((schedule) => schedule.scheduleId === scheduleId);
    await schedules.delete(scheduleId);
    return { before, after };
  },
  // the log
  logsByHostAndPath: async () => {
    await client.publish({ url: `${destination}/logged`, label: ["l1", "l2"] });
    const { host, hostname } = new URL(destination);
    const read = async (filter) =>
      [...new Set((await client.logs({ filter })).logs.map((log) => new URL(log.url).pathname))].sort();
    await waitFor(async () => (await client.logs({ filter: { path: "/logged", state: "DELIVERED" } })).logs.length);
    return {
      path: await read({ path: ["/logged", "/nowhere"] }),
      host: await read({ host: [host, "elsewhere.example"], path: "/logged" }),
      hostname: await read({ host: hostname, path: "/logged" }),
      elsewhere: await read({ host: "elsewhere.example" }),
      label: await read({ label: ["l2", "l3"] }),
    };
  },
  lastPageOfLogs: async () => {
    const page = await client.logs({ count: 1000 });
    return { logs: page.logs.length, last: page.cursor === undefined };
  },
  logPages: async () => {
    const pages = [];
    let cursor;
    do {
      const page = await client.logs({ cursor, count: 1, filter: { path: "/logged" } });
      pages.push(page.logs.length);
      cursor = page.cursor;
    } while (cursor !== undefined && pages.length < 10);
    return pages;
  },
  // the dead letter queue
  fail: () =>
    failed(
      { url: "/fails/1", label: ["red", "all"], flowControl: { key: "js-key", parallelism: 5 } },
      { url: "/fails/2", label: ["blue", "all"], flowControl: { key: "js-other", parallelism: 5 } },
      { url: "/fails/3", label: ["green", "all"] },
      { url: "/fails/4", label: ["green", "all"] },
    ),
  dlqByFlowControl: async () => pathsOf(await dlq.listMessages({ filter: { flowControlKey: ["js-key", "none"] } })),
  dlqByLabels: async () => pathsOf(await dlq.listMessages({ filter: { label: ["red", "blue"] } })),
  dlqByUrls: async () =>
    pathsOf(await dlq.listMessages({ filter: { url: [`${destination}/fails/1`, `${destination}/fails/3`] } })),
  dlqByStatus: async () =>
    pathsOf(await dlq.listMessages({ filter: { responseStatus: [500, 501], label: "all" } })),
  dlqLastPage: async () => {
    const page = await dlq.listMessages({ count: 100 });
    return page.cursor === undefined;
  },
  retryByFlowControl: () => dlq.retry({ filter: { flowControlKey: "js-key" } }),
  retryByLabels: async () => {
    await waitFor(async () => (await dlq.listMessages({ filter: { label: "all" } })).messages.length === 4);
    const retried = await dlq.retry({ filter: { label: ["red", "blue", "green"] }, count: 3 });
    return { responses: retried.responses.length, more: retried.cursor !== undefined };
  },
  deleteByFlowControl: async () => {
    await waitFor(async () => (await dlq.listMessages({ filter: { label: "all" } })).messages.length === 4);
    return dlq.delete({ filter: { flowControlKey: ["js-key", "js-other"] } });
  },
  deleteByUrls: async () => {
    const url = [`${destination}/fails/3`, `${destination}/fails/4`];
    const first = await dlq.delete({ filter: { url }, count: 1 });
    const second = await dlq.delete({ filter: { url }, count: 1, cursor: first.cursor });
    return { first: first.deleted, more: typeof first.cursor, second };
  },
  retryAndDeleteAll: async () => {
    await failed({ url: "/fails/5" }, { url: "/fails/6" });
    const retried = await dlq.retry({ all: true });
    await waitFor(async () => (await dlq.listMessages()).messages.length === 2);
    const deleted = await dlq.delete({ all: true });
    return { retried: retried.responses.length, deleted, left: (await dlq.listMessages()).messages.length };
  },
});
