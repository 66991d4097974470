// The official TypeScript client, through the gateway, at the official servers. What it finds wrong it throws; what it did it prints
// as one JSON object. SDK is its package, for one of an older revision: sdk-2025-03-26, sdk-2024-11-05.
// Usage: client.mjs http URL TOKEN | client.mjs stdio PROGRAM ARGUMENT…
import assert from "node:assert/strict";

const sdk = process.env.SDK ?? "@modelcontextprotocol/sdk";
const older = sdk.startsWith("sdk-"); // than structured content, links to resources and elicitation
const { Client } = await import(`${sdk}/client/index.js`);

const [kind, ...rest] = process.argv.slice(2);
let transport;
if (kind === "http") {
  const { StreamableHTTPClientTransport } = await import(`${sdk}/client/streamableHttp.js`);
  transport = new StreamableHTTPClientTransport(new URL(rest[0]), { requestInit: { headers: { Authorization: `Bearer ${rest[1]}` } } });
} else {
  const { StdioClientTransport } = await import(`${sdk}/client/stdio.js`);
  transport = new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env });
}
const client = new Client({ name: "typescript", version: "1" }, { capabilities: {} });
await client.connect(transport);
const did = { server: client.getServerVersion().name, instructions: client.getInstructions?.() };

// Lists.
const all = async (list, member) => {
  const found = [];
  for (let cursor; ;) {
    const page = await client[list](cursor ? { cursor } : {});
    found.push(...page[member]);
    if (!(cursor = page.nextCursor)) return found;
  }
};
const tools = new Map((await all("listTools", "tools")).map((t) => [t.name, t]));
did.tools = [...tools.keys()];
for (const name of ["everything_echo", "everything_get-sum", "files_read_text_file", "memory_read_graph", "sallyport_status"]) {
  assert.ok(tools.has(name), `${name} is not listed`);
}
assert.ok(tools.get("everything_get-structured-content").outputSchema, "a trusted tool keeps its outputSchema");
assert.equal(tools.get("files_read_text_file").outputSchema, undefined, "an untrusted tool has no outputSchema");
assert.equal(tools.get("everything_echo").annotations.readOnlyHint, true);

// Calls of a trusted server: every content type as it is.
const call = (name, args = {}, options) => client.callTool({ name, arguments: args }, undefined, options);
let r = await call("everything_echo", { message: "grüße 🌍" });
assert.deepEqual(r.content, [{ type: "text", text: "Echo: grüße 🌍" }]);
r = await call("everything_get-sum", { a: 2, b: 40 });
assert.match(r.content[0].text, /42/);
r = await call("everything_get-tiny-image");
assert.deepEqual(r.content.map((c) => c.type), ["text", "image", "text"]);
assert.equal(Buffer.from(r.content[1].data, "base64").subarray(1, 4).toString(), "PNG");
r = await call("everything_get-structured-content", { location: "New York" }); // the client checks it against the schema
assert.equal(typeof r.structuredContent.temperature, "number");
r = await call("everything_get-annotated-message", { messageType: "error", includeImage: true });
assert.equal(r.content[0].annotations.priority, 1);
r = await call("everything_get-resource-links", { count: 3 });
assert.equal(r.content.filter((c) => c.type === "resource_link" || older && c.type === "text" && c.text.includes('"resource_link"')).length, 3);
assert.ok(!older || r.content.every((c) => c.type === "text"));
r = await call("everything_get-resource-reference", { resourceType: "Text", resourceId: 1 });
assert.ok(r.content.some((c) => c.type === "resource"));

// Errors: the server's own, and the gateway's.
r = await call("everything_get-sum", { a: "two", b: 40 });
assert.equal(r.isError, true);
r = await call("no_such_tool");
assert.equal(r.isError, true);
assert.equal(r._meta["sallyport/verdict"].code, "tool.unknown");

// Progress, and a cancelled call that ends at once.
const progress = [];
r = await call("everything_trigger-long-running-operation", { duration: 0.5, steps: 5 }, { onprogress: (p) => progress.push(p) });
assert.match(r.content[0].text, /completed/);
const steps = progress.map((p) => p.progress);
// Older SDKs handle a notification after the answer that came with it, by when they have forgotten what it is about: the last ones can be missing.
assert.deepEqual(steps, [1, 2, 3, 4, 5].slice(0, older ? Math.max(steps.length, 1) : 5));
assert.ok(progress.every((p) => p.total === 5));
const controller = new AbortController();
const began = Date.now();
const cancelled = call("everything_trigger-long-running-operation", { duration: 20, steps: 200 }, { signal: controller.signal, onprogress: () => controller.abort("enough") });
await assert.rejects(cancelled);
did.cancelled_after_ms = Date.now() - began;
assert.ok(did.cancelled_after_ms < 5000);
r = await call("everything_echo", { message: "still here" }); // and the server is not lost by it
assert.equal(r.content[0].text, "Echo: still here");

// A batch, which this client can send but has no function for.
if (sdk === "sdk-2025-03-26" && kind === "http") {
  const answers = new Map();
  const both = Promise.withResolvers();
  const onmessage = transport.onmessage;
  transport.onmessage = (m) => {
    if (!String(m.id).startsWith("batch-")) return onmessage(m);
    if (answers.set(m.id, m).size === 2) both.resolve();
  };
  const echo = (id, message) => ({ jsonrpc: "2.0", id, method: "tools/call", params: { name: "everything_echo", arguments: { message } } });
  await transport.send([echo("batch-1", "one"), { jsonrpc: "2.0", method: "notifications/cancelled", params: { requestId: "batch-0" } }, echo("batch-2", "two")]);
  await both.promise;
  transport.onmessage = onmessage;
  did.batch = ["batch-1", "batch-2"].map((id) => answers.get(id).result.content[0].text);
  assert.deepEqual(did.batch, ["Echo: one", "Echo: two"]);
}

// Resources, prompts, completion.
const resources = await all("listResources", "resources");
did.resources = resources.length;
assert.ok(resources.length > 0);
const read = await client.readResource({ uri: resources[0].uri });
assert.equal(read.contents[0].uri, resources[0].uri);
const templates = await all("listResourceTemplates", "resourceTemplates");
assert.ok(templates.some((t) => t.uriTemplate.startsWith("demo://resource/dynamic/text/")));
const dynamic = await client.readResource({ uri: "demo://resource/dynamic/text/7" });
assert.match(dynamic.contents[0].text, /Resource 7/);
await assert.rejects(client.readResource({ uri: "demo://nowhere" }));
const prompts = await all("listPrompts", "prompts");
did.prompts = prompts.map((p) => p.name);
const prompt = await client.getPrompt({ name: "everything_args-prompt", arguments: { city: "Bern", state: "BE" } });
assert.match(prompt.messages[0].content.text, /Bern/);
await assert.rejects(client.getPrompt({ name: "everything_nothing" }));
const completion = await client.complete({ ref: { type: "ref/prompt", name: "everything_completable-prompt" }, argument: { name: "department", value: "E" } });
assert.deepEqual(completion.completion.values, ["Engineering"]);

// Untrusted servers: fenced and attributed.
const fenced = (r, inside) => {
  assert.ok(!r.isError, r.content[0].text);
  assert.match(r.content[0].text, /UNTRUSTED_EXTERNAL_CONTENT/);
  assert.ok(r.content.some((c) => c.text.includes(inside)), `${inside} is not in ${JSON.stringify(r.content)}`);
  assert.equal(r.structuredContent, undefined);
  assert.equal(r._meta["sallyport/attribution"].trust_level, "UNTRUSTED_EXTERNAL_CONTENT");
};
fenced(await call("files_list_allowed_directories"), "docs");
fenced(await call("files_read_text_file", { path: `${process.env.DOCS}/hello.txt` }), "hello from a file");
fenced(await call("files_write_file", { path: `${process.env.DOCS}/${kind}.txt`, content: "written" }), "Successfully wrote");
r = await call("files_read_text_file", { path: "/etc/hostname" });
assert.equal(r.isError, true);
fenced(await call("memory_create_entities", { entities: [{ name: `Sallyport-${kind}`, entityType: "gate", observations: ["two doors"] }] }), "two doors");
fenced(await call("memory_search_nodes", { query: `Sallyport-${kind}` }), "two doors");

const manifest = await call("sallyport_manifest");
did.phase = manifest.structuredContent.phase;
await client.close();
console.log(JSON.stringify(did));
