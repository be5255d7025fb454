"""A reviewer: an agent over a WebSocket, with the library `websockets` alone.

RELAYMESH_URL=http://127.0.0.1:7717 RELAYMESH_TOKEN=rm_… python reviewer.py
"""

import asyncio
import itertools
import json
import os
import random
import signal

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

NODE_ENDS = ("CLOSED", "JOURNAL_POISONED")


class Problem(Exception):
    """The node refused a frame: its code, and what it says."""


class Agent:
    def __init__(self, url, token, name):
        self.url, self.token, self.name = url.replace("http", "ws", 1) + "/v1/ws", token, name
        self.refs = itertools.count(1)
        self.unanswered = {}  # ref: the frame's text, and the future of its answer
        self.held = set()  # lease tokens that are being worked on
        self.session = None
        self.socket = None

    # -- connect, and connect again

    async def run(self, work):
        """Work until this task is cancelled. Raises when the node does not accept the token."""
        working = asyncio.create_task(self.receive_and_work(work))
        try:
            failures = 0
            while True:
                try:
                    await self.serve_connection()
                    failures = 0
                except InvalidStatus as refused:
                    if refused.response.status_code in (401, 403):
                        raise
                except (OSError, ConnectionClosed):
                    pass  # the node is away: what was not answered is asked again
                failures += 1
                await asyncio.sleep(random.uniform(0.1, min(30, 0.1 * 2**failures)))
        finally:
            working.cancel()

    async def serve_connection(self):
        async with connect(
            self.url,
            subprotocols=["relaymesh.v1.json"],
            additional_headers={"Authorization": f"Bearer {self.token}"},
            max_size=None,
        ) as socket:
            hello = {"op": "hello", "protocol": "1.1", "agent": self.name, "held": sorted(self.held)}
            if self.session is not None:
                hello["resume"] = self.session
            await socket.send(json.dumps(hello))
            welcome = json.loads(await socket.recv())
            if welcome["op"] == "problem":
                raise Problem(f"{welcome['code']}: {welcome['detail']}")
            self.session, self.socket = welcome["session"], socket
            beating = asyncio.create_task(self.beat(socket, welcome["heartbeatMs"] / 1000))
            try:
                for text, _ in list(self.unanswered.values()):
                    await socket.send(text)
                async for text in socket:
                    await self.hear(socket, json.loads(text))
            except asyncio.CancelledError:
                await socket.send('{"op": "goodbye"}')  # what is held goes back, and burns no attempt
                raise
            finally:
                self.socket = None
                beating.cancel()

    async def beat(self, socket, seconds):
        while True:
            await asyncio.sleep(seconds)
            await socket.send('{"op": "heartbeat"}')

    # -- ask, and hear the answer

    async def ask(self, **frame):
        """The answer to a frame, over as many connections as it takes."""
        ref = next(self.refs)
        text = json.dumps({**frame, "ref": ref})
        answer = asyncio.get_running_loop().create_future()
        self.unanswered[ref] = (text, answer)
        try:
            if self.socket is not None:
                try:
                    await self.socket.send(text)
                except ConnectionClosed:
                    pass  # it is sent again on the next connection
            return await answer
        finally:
            self.unanswered.pop(ref, None)

    async def hear(self, socket, frame):
        _, answer = self.unanswered.get(frame.get("ref"), (None, None))
        if answer is None or answer.done():
            return  # a heartbeat's ack, or going_away: the connection ends by itself
        if frame["op"] != "problem":
            answer.set_result(frame)
        elif frame["code"] in NODE_ENDS:
            await socket.close()
        else:
            answer.set_exception(Problem(f"{frame['code']}: {frame['detail']}"))

    # -- lease, extend, settle

    async def receive_and_work(self, work):
        while True:
            answer = await self.ask(op="receive", mailbox=self.name, max=1, waitMs=None)
            for delivery in answer["deliveries"]:
                await self.handle(delivery, work)

    async def handle(self, delivery, work):
        token, message = delivery["token"], delivery["message"]
        self.held.add(token)
        extending = asyncio.create_task(self.extend(token, delivery["leaseMs"]))
        try:
            reply = {
                "id": f"answer-{message['id']}",  # the same one if this is ever done twice
                "from": self.name,
                "to": message["from"],
                "type": "answer",
                "content": await work(message),
                "metadata": {"correlationId": message["metadata"].get("correlationId", message["id"])},
            }
            settle = {"replies": [{"token": token, "messages": [reply]}]}
        except Exception as error:
            settle = {"nacks": [{"token": token, "reason": repr(error)}]}
        finally:
            extending.cancel()
        (result,) = (await self.ask(op="settle", **settle))["results"]
        self.held.discard(token)
        print(message["id"], "attempt", delivery["attempt"], result["outcome"], flush=True)

    async def extend(self, token, lease_ms):
        """The work may take longer than the lease."""
        while True:
            await asyncio.sleep(lease_ms / 3000)
            await self.ask(op="settle", extends=[{"token": token, "ms": lease_ms}])


async def review(message):
    """The work itself: here the model would think."""
    lines = message["content"]["code"].splitlines()
    await asyncio.sleep(message["content"].get("seconds", 0))
    too_long = [number for number, line in enumerate(lines, 1) if len(line) > 80]
    return {"lines": len(lines), "too long": too_long}


async def main():
    agent = Agent(os.environ["RELAYMESH_URL"], os.environ["RELAYMESH_TOKEN"], "reviewer")
    running = asyncio.create_task(agent.run(review))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        print("goodbye", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
