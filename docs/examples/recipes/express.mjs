import express from "express";

const app = express();
app.post("/like/:post", async (request, response) => {
  const answer = await fetch("http://127.0.0.1:8000/v1/events", {
    method: "POST",
    headers: { "Content-Type": "application/json", "Idempotency-Key": crypto.randomUUID() },
    body: JSON.stringify({ key: request.params.post }),
  });
  response.status(answer.status).json({ counted: (await answer.json()).accepted });
});
app.get("/", (request, response) => response.send('<iframe src="http://127.0.0.1:8000/embed/posts"></iframe>'));
app.listen(8080, "127.0.0.1");
