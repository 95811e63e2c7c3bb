// A peer of fan-out: the package `ws` on Node, which sends one prepared payload to every client per tick.
//
// usage: node ws.mjs MODULE PAYLOAD_BYTES TICK_SECONDS, where MODULE is the entry point of `ws`; prints its address.
import { pathToFileURL } from "node:url";

const [module, size, tick] = process.argv.slice(2);
const { WebSocketServer } = await import(pathToFileURL(module));
const payload = Buffer.alloc(Number(size), "x");
const server = new WebSocketServer({ host: "127.0.0.1", port: 0, backlog: 4096, perMessageDeflate: false });
server.on("listening", () => console.log(`at http://127.0.0.1:${server.address().port}/`));
setInterval(() => {
  for (const client of server.clients) {
    if (client.readyState === 1) client.send(payload, { binary: false });
  }
}, Number(tick) * 1000);
