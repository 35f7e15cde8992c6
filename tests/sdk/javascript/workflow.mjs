// The package @upstash/workflow: an application of two steps, its client, and POST /v2/batch/trigger.
import { createServer } from "node:http";
import { Client as QueueClient } from "@upstash/qstash";
import { Client } from "@upstash/workflow";
import { serve } from "@upstash/workflow/tanstack";
import { runSteps, waitFor } from "./steps.mjs";

const address = process.env.QSTASH_URL;
const token = process.env.QSTASH_TOKEN;
console.error = () => {}; // the package reports errors there, too

const { POST } = serve(
  async (context) => {
    const payload = context.requestPayload;
    const doubled = await context.run("double", () => payload.n * 2);
    return await context.run("check", () => {
      if (payload.fails) throw new Error("as requested");
      return doubled;
    });
  },
  {
    qstashClient: new QueueClient({ baseUrl: address, token, enableTelemetry: false }),
    verbose: false,
    disableTelemetry: true,
    receiver: undefined,
  },
);

const server = createServer(async (incoming, outgoing) => {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const url = `http://${incoming.headers.host}${incoming.url}`;
  const request = new Request(url, { method: "POST", headers: incoming.headers, body: Buffer.concat(chunks) });
  const response = await POST({ request });
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  outgoing.end(Buffer.from(await response.arrayBuffer()));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const application = `http://127.0.0.1:${server.address().port}`;
const client = new Client({ baseUrl: address, token, retry: false, enableTelemetry: false });

async function ended(workflowRunId) {
  return waitFor(async () => {
    const { runs } = await client.logs({ filter: { workflowRunId } });
    return runs.length === 1 && runs[0].workflowState !== "RUN_STARTED" && runs[0];
  });
}

async function batchTrigger(items) {
  const response = await fetch(`${address}/v2/batch/trigger`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify(items),
  });
  return { status: response.status, json: await response.json() };
}

const fails = { url: `${application}/fails`, body: { n: 1, fails: true }, retries: 0 };

await runSteps({
  trigger: async () => {
    const { workflowRunId } = await client.trigger({ url: `${application}/one`, body: { n: 2 }, label: ["a", "b"] });
    return (await ended(workflowRunId)).workflowState;
  },
  triggerMany: async () => {
    const started = await client.trigger([1, 2].map((n) => ({ url: `${application}/many`, body: { n } })));
    return Promise.all(started.map(async (run) => (await ended(run.workflowRunId)).workflowState));
  },
  batchTrigger: async () => {
    const item = { destination: `${application}/batch`, body: JSON.stringify({ n: 3 }) };
    const named = { ...item, headers: { "Upstash-Workflow-RunId": "wfr_named_by_js", "Upstash-Label": "batch" } };
    const first = await batchTrigger([item, named]);
    const again = await batchTrigger([named]);
    const runs = await Promise.all(first.json.map((run) => ended(run.workflowRunId)));
    return { first, again, states: runs.map((run) => run.workflowState), label: runs[1].label };
  },
  batchTriggerIsAtomic: async () => {
    const item = { destination: `${application}/atomic`, body: "{}" };
    const response = await batchTrigger([item, { ...item, destination: "nowhere" }]);
    const { runs } = await client.logs({ filter: { path: "/atomic" } });
    return { status: response.status, error: response.json.error, runs: runs.length };
  },
  logsByHostAndPath: async () => {
    const read = async (filter) => (await client.logs({ filter })).runs.length;
    const { host } = new URL(application);
    return [
      await read({ host, path: ["/many", "/nowhere"] }),
      await read({ host: ["elsewhere.example"] }),
    ];
  },
  lastPageOfLogs: async () => (await client.logs()).cursor === undefined,
  deadLetters: async () => {
    const runs = await client.trigger([fails, { ...fails, label: "other" }]);
    await Promise.all(runs.map((run) => ended(run.workflowRunId)));
    const page = await client.dlq.list();
    const one = await client.dlq.list({ filter: { workflowRunId: runs[0].workflowRunId } });
    const resumed = await client.dlq.resume({ filter: { label: ["other"] } });
    const deleted = await client.dlq.delete({ all: true });
    return {
      listed: page.messages.length,
      last: page.cursor === undefined,
      one: one.messages.map((entry) => entry.workflowRunId === runs[0].workflowRunId),
      resumed: resumed.workflowRuns.length,
      deleted,
    };
  },
  cancelByPath: async () => {
    const waiting = { url: `${application}/waits`, body: { n: 1 }, delay: "1d" };
    await client.trigger([waiting, waiting, { ...waiting, url: `${application}/stays` }]);
    const some = await client.cancel({ filter: { path: ["/waits", "/nowhere"] } });
    const rest = await client.cancel({ filter: { host: new URL(application).host } });
    return [some.cancelled, rest.cancelled];
  },
});
server.close();
server.closeAllConnections();
