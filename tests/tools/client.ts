// Posts an event with a generated client, and reads the board. The address of the server is the first argument.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

declare const process: { argv: string[]; exit(status: number): never };

const client = createClient<paths>({ baseUrl: process.argv[2] });

const posted = await client.POST("/v1/events", { body: { key: "from TypeScript", amount: 3 } });
if (posted.error) {
  // If a strict request is refused, its answer has refusals instead of a code.
  console.error("code" in posted.error ? posted.error.code : posted.error.rejected);
  process.exit(1);
}
const read = await client.GET("/v1/boards/{board}", { params: { path: { board: "posts" }, query: { limit: 5 } } });
if (read.error) {
  console.error(read.error.code, read.error.detail);
  process.exit(1);
}
console.log(posted.data.accepted, read.data.records.map((record) => `${record.key} ${record.score}`).join(", "));
