// Loaded before server-github and figma-developer-mcp: the services they talk to, from files in STRANGER_FOLDER. Comments on issues go to
// record.jsonl there. What has no file can't be reached, as without a network.
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const folder = process.env.STRANGER_FOLDER;

globalThis.fetch = async (url, options = {}) => {
  const { pathname } = new URL(url);
  const comment = /^\/repos\/([^/]+\/[^/]+)\/issues\/(\d+)\/comments$/.exec(pathname);
  let answer;
  if (comment && options.method === "POST") {
    appendFileSync(join(folder, "record.jsonl"), JSON.stringify({ to: `issue ${comment[2]} of ${comment[1]}`, what: JSON.parse(options.body).body }) + "\n");
    answer = `{"id":1,"html_url":"https://github.com/${comment[1]}/issues/${comment[2]}"}`;
  } else {
    const file = join(folder, pathname.replaceAll("/", "_") + ".json");
    if (pathname.includes("..") || !existsSync(file)) throw new TypeError("fetch failed");
    answer = readFileSync(file, "utf8");
  }
  return new Response(answer, { headers: { "content-type": "application/json" } });
};
