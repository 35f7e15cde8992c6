// Runs named steps and prints, as one JSON object, what each returned or the error that it raised.

import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto; // Node.js 18 has no global of this name, and the packages use it

export async function runSteps(steps) {
  const results = {};
  for (const [name, step] of Object.entries(steps)) {
    try {
      results[name] = (await step(results)) ?? null;
    } catch (error) {
      results[name] = { raised: `${error.name}: ${error.message}` };
    }
  }
  process.stdout.write(JSON.stringify(results));
}

export async function waitFor(condition, seconds = 20) {
  const deadline = Date.now() + seconds * 1000;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`waited ${seconds} s in vain for ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
