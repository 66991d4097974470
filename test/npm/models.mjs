// Asks models through the gateway with the providers' own SDKs, with Vercel's, and with a framework of agents, and prints what came of each request as one line of JSON. The arguments are the gateway's
// address, a token, and the names of Anthropic's and OpenAI's model. Every request is made as an agent makes it: with base URL and key alone.
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool as agentTool } from "@openai/agents";
import { generateText, jsonSchema, streamText, tool } from "ai";

const [url, token, claude, gpt] = process.argv.slice(2);
const anthropic = new Anthropic({ baseURL: url + "/anthropic", apiKey: token });
const openai = new OpenAI({ baseURL: url + "/openai/v1", apiKey: token });

const messages = (content) => [{ role: "user", content }];
const tools = [{ name: "f", description: "d", input_schema: { type: "object" } }];
const functions = [{ type: "function", function: { name: "f", description: "d", parameters: { type: "object" } } }];

// Vercel's: its addresses have the version in them.
const vercel = {
  anthropic: createAnthropic({ baseURL: url + "/anthropic/v1", apiKey: token })(claude),
  chat: createOpenAI({ baseURL: url + "/openai/v1", apiKey: token }).chat(gpt),
  responses: createOpenAI({ baseURL: url + "/openai/v1", apiKey: token }).responses(gpt),
};
const deleteAll = { delete_all: tool({ description: "d", inputSchema: jsonSchema({ type: "object", properties: { a: { type: "number" } } }) }) };
const saidBy = (text, calls) => [text, ...calls.map((c) => c.toolName + JSON.stringify(c.input))].join("|");

setTracingDisabled(true); // it would tell a server of the provider's about each run
const runner = (responses) => new Runner({ modelProvider: new OpenAIProvider({ baseURL: url + "/openai/v1", apiKey: token, useResponses: responses }) });
const agent = new Agent({ name: "a", instructions: "i", model: gpt });
// One that has a tool: its run asks the model again with the tool's result.
const deleted = [];
const parameters = { type: "object", properties: { a: { type: "number" } }, required: ["a"], additionalProperties: false };
const acting = new Agent({ name: "a", instructions: "i", model: gpt, tools: [agentTool({ name: "delete_all", description: "d", parameters, execute: ({ a }) => "deleted " + deleted.push(a) })] });
const streamedRun = async (responses, text) => {
  const run = await runner(responses).run(acting, text, { stream: true });
  let said = "";
  for await (const piece of run.toTextStream()) said += piece;
  await run.completed;
  return said + "|" + run.finalOutput + "|" + deleted.splice(0).join();
};

const requests = {
  ...Object.fromEntries(
    Object.entries(vercel).flatMap(([form, model]) => [
      ["vercel " + form + " whole", async (text) => (await generateText({ model, prompt: text, maxOutputTokens: 16 })).text],
      [
        "vercel " + form + " stream",
        async (text) => {
          let failed;
          const r = streamText({ model, prompt: text, maxOutputTokens: 16, tools: deleteAll, onError: ({ error }) => (failed = error) });
          let said;
          try {
            said = saidBy(await r.text, await r.toolCalls);
          } catch (e) {
            throw failed ?? e;
          }
          if (failed) throw failed; // of a stream that broke off it has the beginning all the same
          return said;
        },
      ],
    ]),
  ),
  "agents chat whole": async (text) => (await runner(false).run(agent, text)).finalOutput,
  "agents responses whole": async (text) => (await runner(true).run(agent, text)).finalOutput,
  "agents chat stream": (text) => streamedRun(false, text),
  "agents responses stream": (text) => streamedRun(true, text),
  "anthropic whole": async (text) => (await anthropic.messages.create({ model: claude, max_tokens: 16, messages: messages(text) })).content[0].text,
  "anthropic stream": async (text) => {
    const stream = anthropic.messages.stream({ model: claude, max_tokens: 16, messages: messages(text), tools });
    const last = await stream.finalMessage();
    return last.content.map((b) => b.text ?? b.name + JSON.stringify(b.input)).join("|") + "|" + last.usage.output_tokens;
  },
  "openai whole": async (text) => (await openai.chat.completions.create({ model: gpt, messages: messages(text) })).choices[0].message.content,
  "openai stream": async (text) => {
    const stream = openai.chat.completions.stream({ model: gpt, messages: messages(text), tools: functions });
    const { message } = (await stream.finalChatCompletion()).choices[0];
    return message.content + "|" + message.tool_calls.map((c) => c.function.name + c.function.arguments).join("|");
  },
  "responses whole": async (text) => (await openai.responses.create({ model: gpt, input: text })).output_text,
  "responses stream": async (text) => {
    let said = "";
    for await (const e of await openai.responses.create({ model: gpt, input: text, tools: [{ type: "function", name: "f", parameters: { type: "object" } }], stream: true })) {
      if (e.type === "response.output_text.delta") said += e.delta;
      if (e.type === "response.completed") said += "|" + e.response.output.map((i) => i.name + i.arguments).join("|") + "|" + e.response.usage.output_tokens;
    }
    return said;
  },
  "anthropic count": async (text) => String((await anthropic.messages.countTokens({ model: claude, messages: messages(text), tools })).input_tokens),
  "openai models": async () => (await openai.models.list()).data.map((m) => m.id).join(","),
  "anthropic models": async () => (await anthropic.models.list()).data.map((m) => m.id).join(","),
};

for await (const line of process.stdin.setEncoding("utf8").iterator({ destroyOnReturn: false })) {
  for (const wanted of line.split("\n").filter(Boolean)) {
    const { name, text } = JSON.parse(wanted);
    let out;
    try {
      out = { answer: await requests[name](text) };
    } catch (thrown) {
      const e = thrown.lastError ?? thrown; // of a request that Vercel's sent several times
      const body = e.responseBody ? JSON.parse(e.responseBody) : e.error;
      out = { status: e.status ?? e.statusCode, kind: thrown.constructor.name, code: body?.error?.sallyport?.code ?? body?.sallyport?.code, message: String(e.message) };
    }
    console.log(JSON.stringify(out));
  }
}
process.exit(0);
