// A reviewer: an agent over a WebSocket, without any package.
//
//     RELAYMESH_URL=http://127.0.0.1:7717 RELAYMESH_TOKEN=rm_… node reviewer.mjs
//
// Node 22 or newer; Node 20 needs `node --experimental-websocket reviewer.mjs`.

const NODE_ENDS = ["CLOSED", "JOURNAL_POISONED"];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Agent {
  constructor(url, token, name) {
    this.url = url.replace("http", "ws") + "/v1/ws";
    this.token = token;
    this.name = name;
    this.refs = 0;
    this.unanswered = new Map(); // ref: the frame's text, and what to call with its answer
    this.held = new Set(); // lease tokens that are being worked on
    this.session = null;
    this.socket = null;
    this.stopping = false;
  }

  // -- connect, and connect again

  async run(work) {
    this.receiveAndWork(work);
    let failures = 0;
    while (!this.stopping) {
      if (await this.serveConnection()) failures = 0;
      failures += 1;
      await sleep(100 + Math.random() * Math.min(30000, 100 * 2 ** failures));
    }
  }

  // Resolves when the connection has ended: true if there was one.
  serveConnection() {
    return new Promise((resolve) => {
      const socket = new WebSocket(this.url, ["relaymesh.v1.json"]);
      let beating = null;
      socket.onopen = () => {
        const hello = { op: "hello", protocol: "1.1", token: this.token, agent: this.name, held: [...this.held] };
        if (this.session !== null) hello.resume = this.session;
        socket.send(JSON.stringify(hello));
      };
      socket.onmessage = ({ data }) => {
        const frame = JSON.parse(data);
        if (frame.op === "welcome") {
          this.session = frame.session;
          this.socket = socket;
          beating = setInterval(() => socket.send('{"op":"heartbeat"}'), frame.heartbeatMs);
          for (const { text } of this.unanswered.values()) socket.send(text);
        } else {
          this.hear(socket, frame);
        }
      };
      socket.onclose = () => {
        clearInterval(beating);
        const connected = this.socket === socket;
        if (connected) this.socket = null; // what was not answered is asked again
        resolve(connected);
      };
      socket.onerror = () => {
        console.error("no connection to", this.url, "(is the token accepted?)");
        socket.onclose(); // Node 20 calls it itself only where there was a connection
      };
    });
  }

  // What is held goes back, and burns no attempt.
  stop() {
    this.stopping = true;
    this.socket?.send('{"op":"goodbye"}');
  }

  // -- ask, and hear the answer

  // The answer to a frame, over as many connections as it takes.
  ask(frame) {
    const ref = (this.refs += 1);
    const text = JSON.stringify({ ...frame, ref });
    return new Promise((resolve, reject) => {
      this.unanswered.set(ref, { text, resolve, reject });
      this.socket?.send(text);
    });
  }

  hear(socket, frame) {
    const asked = this.unanswered.get(frame.ref);
    if (asked === undefined) {
      if (frame.op === "problem") console.error(frame.code, frame.detail, frame.hint);
      return; // or a heartbeat's ack, or going_away: the connection ends by itself
    }
    if (frame.op === "problem" && NODE_ENDS.includes(frame.code)) {
      socket.close();
      return;
    }
    this.unanswered.delete(frame.ref);
    if (frame.op === "problem") asked.reject(new Error(`${frame.code}: ${frame.detail}`));
    else asked.resolve(frame);
  }

  // -- lease, extend, settle

  async receiveAndWork(work) {
    for (;;) {
      const { deliveries } = await this.ask({ op: "receive", mailbox: this.name, max: 1, waitMs: null });
      for (const delivery of deliveries) await this.handle(delivery, work);
    }
  }

  async handle({ token, message, attempt, leaseMs }, work) {
    this.held.add(token);
    const extend = () => this.ask({ op: "settle", extends: [{ token, ms: leaseMs }] });
    const extending = setInterval(extend, leaseMs / 3); // the work may take longer than the lease
    let settle;
    try {
      const reply = {
        id: `answer-${message.id}`, // the same one if this is ever done twice
        from: this.name,
        to: message.from,
        type: "answer",
        content: await work(message),
        metadata: { correlationId: message.metadata.correlationId ?? message.id },
      };
      settle = { replies: [{ token, messages: [reply] }] };
    } catch (error) {
      settle = { nacks: [{ token, reason: String(error) }] };
    } finally {
      clearInterval(extending);
    }
    const { results } = await this.ask({ op: "settle", ...settle });
    this.held.delete(token);
    console.log(message.id, "attempt", attempt, results[0].outcome);
  }
}

// The work itself: here the model would think.
async function review(message) {
  const lines = message.content.code.split("\n");
  await sleep(1000 * (message.content.seconds ?? 0));
  return { lines: lines.length, "too long": lines.flatMap((line, i) => (line.length > 80 ? [i + 1] : [])) };
}

const agent = new Agent(process.env.RELAYMESH_URL, process.env.RELAYMESH_TOKEN, "reviewer");
process.on("SIGTERM", () => {
  agent.stop();
  console.log("goodbye");
  setTimeout(() => process.exit(0), 500);
});
await agent.run(review);
