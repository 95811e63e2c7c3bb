import { StrictMode, useState } from "react";
import { createRoot } from "react-dom/client";
import { useLiveBoard } from "live-board/react";
import { grouped, nameWords, stateWords } from "live-board/words";

const SERVER = "http://127.0.0.1:8000";
const OPEN = { frozen: false, closes: Infinity };

function Top({ board, limit }) {
  const snapshot = useLiveBoard(SERVER, board, { limit });
  const [, words] = stateWords(snapshot, OPEN, Date.now());
  return (
    <section>
      <p role="status">{words}</p>
      <ol>
        {snapshot.records.map(({ key, score }) => (
          <li key={key}>
            <bdi>{nameWords(key)}</bdi>: {grouped(score)}
          </li>
        ))}
      </ol>
    </section>
  );
}

function App() {
  const [limit, setLimit] = useState(3);
  return (
    <main>
      <h1>Most liked</h1>
      <Top board="posts" limit={limit} />
      <button onClick={() => setLimit(limit + 3)}>Show more</button>
    </main>
  );
}

createRoot(document.querySelector("#root")).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
