// Ids from idmill over the Redis protocol, with node-redis: copy this file into a service.

import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, ErrorReply, RESP_TYPES } from 'redis';

// Prefixes of the errors that may not occur on another attempt or another server: the store is unreachable, its reply
// was lost, the server is shutting down, or the server is full. All others (EXHAUSTED, NOTFOUND, WRONGPASS, NOPERM, …)
// are permanent.
const TRANSIENT = /^(TRYAGAIN|UNKNOWN|CLOSED|ERR max number of clients)/;
const TRIES = 10; // 3 to 17 seconds in all, if no server is reachable
const [PAUSE, LONGEST_PAUSE] = [20, 2000];
const TIMEOUT = 7000; // longer than the server's --timeout (5 s), after which it returns TRYAGAIN

/** An error that the server did not send, such as a lost connection, is transient. */
export const isTransient = (error) => !(error instanceof ErrorReply) || TRANSIENT.test(error.message);

/** Random, so that clients do not all retry at the same time when a server is reachable again. */
const jitter = (ms) => ms * (0.5 + Math.random() / 2);

/**
 * Draws from the first of several servers that answers. Share one in the whole process.
 *
 * A command whose reply was lost is sent again: ids are never handed out twice, so a lost id becomes a gap.
 * node-redis does not retry a command that it has sent, and is configured to queue no commands while disconnected.
 *
 * Ids are BigInts: numbers are exact only up to 2^53. If a sequence was created with a smaller `--max`, `Number(id)`
 * is exact.
 */
export class Ids {
  retries = 0;
  #at = 0;
  #servers;
  #end = new AbortController();

  constructor(urls, token) {
    this.#servers = urls.map((url) => connect(url, token, this.#end.signal));
  }

  /** Draws one id. */
  next(name) {
    return this.#ask(async (server) => BigInt(await server.incr(name)));
  }

  /** Draws ids in one round trip, in increasing order. For more than some hundred, use `take`. */
  many(name, n) {
    // node-redis sends the commands of one turn of the event loop in one pipeline. If one fails, the ids of the others
    // become a gap.
    const one = async (server) => BigInt(await server.incr(name));
    return this.#ask((server) => Promise.all(Array.from({ length: n }, () => one(server))));
  }

  /** Draws `n` consecutive ids: the reply to INCRBY is the last of them. */
  async block(name, n) {
    const last = await this.#ask(async (server) => BigInt(await server.incrBy(name, n)));
    return { first: last - BigInt(n) + 1n, last };
  }

  /** Draws `n` ids in as few ranges as possible. Unlike `block`, it skips no ids. */
  async take(name, n) {
    const ends = await this.#ask((server) => server.sendCommand(['IDMILL.TAKE', name, String(n)]));
    return ends.flatMap((end, at) => (at % 2 ? [] : [{ first: BigInt(end), last: BigInt(ends[at + 1]) }]));
  }

  /** The index of the server in use. */
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
      // Switch to the next server, unless another caller already did.
      if (this.#at === at) this.#at = (at + 1) % this.#servers.length;
      this.retries++;
      await sleep(jitter(pause));
    }
  }

  close() {
    for (const { client } of this.#servers) client.destroy();
    this.#end.abort(); // `destroy` does not close a connection that is being opened, which would keep the process alive
  }
}

function connect(url, token, signal) {
  const client = createClient({
    url, // `rediss://` for TLS
    password: token,
    disableOfflineQueue: true, // another server may be reachable
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
  // Such as a wrong token, which the command itself would not report.
  if (!server.client.isReady && server.error) throw server.error;
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${TIMEOUT} ms`)), TIMEOUT);
  });
  return Promise.race([command(server.digits), late]).finally(() => clearTimeout(timer));
}

/**
 * Ids for bulk inserts: drawn a block at a time, handed out from memory.
 *
 * Choose a `size` that lasts for about one second: unused ids become a gap when the process ends, and are smaller than
 * the ids that other processes draw in the meantime.
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
