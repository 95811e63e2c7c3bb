// A page whose rows a server renders. Without script, the rows are as old as the page. With script, they continue live
// from there.
import { createServer } from "node:http";
import { grouped, nameWords } from "live-board/words";

const BOARDS = "http://127.0.0.1:8000"; // the server of the boards
const PORT = Number(process.env.PORT ?? 8080);
const UNSAFE = /[&<>"']/g;

createServer(async (request, response) => {
  if (request.url !== "/") return void response.writeHead(404).end();
  const answer = await fetch(`${BOARDS}/v1/boards/posts?limit=10`, { signal: AbortSignal.timeout(2000) }).catch(() => null);
  if (!answer?.ok) return void response.writeHead(503, { "Retry-After": "5" }).end("The board is not available.");
  response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-cache" });
  response.end(pageOf(await answer.json()));
}).listen(PORT, "127.0.0.1", () => console.log(`http://127.0.0.1:${PORT}/`));

function pageOf({ epoch, offset, records, rank_count: rankCount, total_score: totalScore }) {
  const ranks = "ordinal"; // the ranks of the board's definition
  const position = JSON.stringify({ epoch, offset, records, rankCount, totalScore, ranks });
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Most liked</title>
<style>
  :root { color-scheme: light dark; font: 1rem/1.4 system-ui, sans-serif; }
  table { width: 100%; max-width: 40rem; table-layout: fixed; }
  th, td { height: 2.5rem; overflow: hidden; text-align: start; text-overflow: ellipsis; white-space: nowrap; }
  .rank { width: 3rem; }
  .score { width: 8rem; text-align: end; }
</style>
<main>
<h1>Most liked</h1>
<table>
<thead><tr><th scope="col" class="rank">Rank</th><th scope="col">Name</th><th scope="col" class="score">Score</th></tr></thead>
<tbody id="records">${records.map(rowOf).join("")}</tbody>
</table>
</main>
<script type="application/json" id="position">${position.replaceAll("<", "\\u003c")}</script>
<script type="module">
  import { LiveBoard } from "${BOARDS}/client/live-board.js";
  import { TableView } from "${BOARDS}/client/view.js";

  const position = JSON.parse(document.querySelector("#position").textContent);
  const board = new LiveBoard("${BOARDS}", "posts", { limit: 10, position });
  const table = new TableView(document.querySelector("#records"));
  board.on("change", ({ records }) => table.show(records));
  board.start();
</script>
</html>`;
}

function rowOf({ key: member, rank, score }) {
  return `<tr data-member="${safe(member)}"><td class="rank">${rank}</td><th scope="row"><bdi>${safe(nameWords(member))}</bdi></th>
<td class="score">${grouped(score)}</td></tr>`;
}

function safe(text) {
  return text.replace(UNSAFE, (character) => `&#${character.charCodeAt(0)};`);
}
