// Ids from idmill over the Redis protocol, by node-redis as it is: copy this file into a service.

import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, ErrorReply, RESP_TYPES } from 'redis';

// How an error begins that another attempt, or another server, may not meet: the store is away; its answer was
// lost; the server ends; the server is full. All others (EXHAUSTED, NOTFOUND, WRONGPASS, NOPERM, …) stay until
// somebody changes something.
const TRANSIENT = /^(TRYAGAIN|UNKNOWN|CLOSED|ERR max number of clients)/;
const TRIES = 10; // about ten seconds in all, where nobody answers
const [PAUSE, LONGEST_PAUSE] = [20, 2000];
const PATIENCE = 7000; // beyond the server's --patience (5 s), after which it answers TRYAGAIN

/** What did not come from the server, such as a lost connection, is transient. */
export const isTransient = (error) => !(error instanceof ErrorReply) || TRANSIENT.test(error.message);

/** Not all clients at the same time, when a server is back. */
const jitter = (ms) => ms * (0.5 + Math.random() / 2);

/**
 * Draws from the first of several servers that answers. All of a process share one.
 *
 * A command whose answer was lost is simply sent again: ids are never handed out twice, so the lost one is a gap.
 * node-redis repeats no command that it has sent, and here keeps none for later either.
 *
 * Ids are BigInts: numbers are exact up to 2^53 only. Of a sequence that was created with a smaller `--max`,
 * `Number(id)` is the id.
 */
export class Ids {
  retries = 0;
  #at = 0;
  #servers;
  #end = new AbortController();

  constructor(urls, token) {
    this.#servers = urls.map((url) => connect(url, token, this.#end.signal));
  }

  /** One id. */
  next(name) {
    return this.#ask(async (server) => BigInt(await server.incr(name)));
  }

  /** Ids in one round trip, growing. For more than some hundred, `take` is the better way. */
  many(name, n) {
    // What is sent in one turn of the event loop is one pipeline. If one fails, the others are a gap.
    const one = async (server) => BigInt(await server.incr(name));
    return this.#ask((server) => Promise.all(Array.from({ length: n }, () => one(server))));
  }

  /** `n` ids in a row: the answer to INCRBY is the last of them. */
  async block(name, n) {
    const last = await this.#ask(async (server) => BigInt(await server.incrBy(name, n)));
    return { first: last - BigInt(n) + 1n, last };
  }

  /** `n` ids in as few ranges as possible. Unlike `block`, this skips nothing. */
  async take(name, n) {
    const ends = await this.#ask((server) => server.sendCommand(['IDMILL.TAKE', name, String(n)]));
    return ends.flatMap((end, at) => (at % 2 ? [] : [{ first: BigInt(end), last: BigInt(ends[at + 1]) }]));
  }

  /** Which server answers, by its place in the list. */
  get server() {
    return this.#at;
  }

  async #ask(command) {
    for (let attempt = 1, pause = PAUSE; ; attempt++, pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      const at = this.#at;
      try {
        return await answer(this.#servers[at], command);
      } catch (error) {
        if (attempt === TRIES || !isTransient(error)) throw error;
      }
      // The next server, unless another caller has gone on already.
      if (this.#at === at) this.#at = (at + 1) % this.#servers.length;
      this.retries++;
      await sleep(jitter(pause));
    }
  }

  close() {
    for (const { client } of this.#servers) client.destroy();
    this.#end.abort(); // `destroy` forgets a connection that is just being made, and it would keep the process alive
  }
}

function connect(url, token, signal) {
  const client = createClient({
    url, // `rediss://` speaks TLS
    password: token,
    disableOfflineQueue: true, // another server may be there
    socket: { signal, connectTimeout: 1000, reconnectStrategy: (tries) => jitter(Math.min(PAUSE * 2 ** tries, LONGEST_PAUSE)) },
  });
  // Digits instead of numbers, which BigInt reads.
  const server = { client, digits: client.withTypeMapping({ [RESP_TYPES.NUMBER]: String }), error: undefined };
  client.on('error', (error) => (server.error = error)).on('ready', () => (server.error = undefined));
  server.tried = once(client, 'ready').catch(() => {});
  client.connect().catch(() => {});
  return server;
}

async function answer(server, command) {
  await server.tried;
  // Such as a wrong token, which a command would not tell.
  if (!server.client.isReady && server.error) throw server.error;
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${PATIENCE} ms`)), PATIENCE);
  });
  return Promise.race([command(server.digits), late]).finally(() => clearTimeout(timer));
}

/**
 * Ids for bulk inserts: drawn a block at a time, handed out from memory.
 *
 * What is left in memory when the process ends is a gap, and is smaller than what others draw meanwhile: so take
 * no larger blocks than are used within a second or so.
 */
export class Block {
  #left = { first: 1n, last: 0n };
  #refill;

  constructor(ids, name, size = 100) {
    this.draw = () => ids.block(name, size);
  }

  async next() {
    while (this.#left.first > this.#left.last) {
      this.#refill ??= this.draw().then((block) => (this.#left = block)).finally(() => (this.#refill = undefined));
      await this.#refill;
    }
    return this.#left.first++;
  }
}
