from contextlib import asynccontextmanager

from fastapi import FastAPI, responses
from live.client import Event, LiveBoard

live = LiveBoard("http://127.0.0.1:8000")

@asynccontextmanager
async def lifespan(app):
    async with live:
        yield

app = FastAPI(lifespan=lifespan)

@app.post("/like/{post}")
async def like(post: str):
    return {"counted": (await live.post(Event(post))).accepted}

@app.get("/", response_class=responses.HTMLResponse)
def page():
    return '<iframe src="http://127.0.0.1:8000/embed/posts"></iframe>'
