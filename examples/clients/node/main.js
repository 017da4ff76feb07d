// Draws ids from the command line; see ../README.md.

import { Block, Ids, isTransient } from './idmill.js';
import { draw, Problem } from './idmill-http.js';

const words = (variable, otherwise) => (process.env[variable] ?? otherwise).split(',');
const print = (...ids) => console.log(ids.join('\n'));

function* each({ first, last }) {
  for (let id = first; id <= last; id++) yield id;
}

/** Draws in every way for some seconds, and prints each range with the server that it came from. */
async function record(ids, name, seconds) {
  const block = new Block(ids, name, 20);
  const end = performance.now() + 1000 * seconds;
  while (performance.now() < end) {
    const id = await ids.next(name);
    print(`${ids.server} ${id} ${id}`);
    for (const { first, last } of await ids.take(name, 30)) print(`${ids.server} ${first} ${last}`);
    const { first, last } = await ids.block(name, 10);
    print(`${ids.server} ${first} ${last}`);
    for (const id of await ids.many(name, 10)) print(`${ids.server} ${id} ${id}`);
    for (let i = 0; i < 25; i++) {
      const id = await block.next();
      print(`block ${id} ${id}`);
    }
  }
  console.error(`${ids.retries} retries`);
}

async function run(ids, token, what, name, n) {
  if (what === 'next') print(await ids.next(name));
  else if (what === 'many') print(...(await ids.many(name, n)));
  else if (what === 'block') print(...each(await ids.block(name, n)));
  else if (what === 'take') print(...(await ids.take(name, n)).flatMap((range) => [...each(range)]));
  else if (what === 'http') print(...(await draw(words('IDMILL_HTTP', 'http://localhost:7381'), name, n, token)));
  else if (what === 'record') await record(ids, name, n);
  else throw new Error('usage: main.js next|many|block|take|http|record NAME [N]');
}

const token = process.env.IDMILL_TOKEN;
const ids = new Ids(words('IDMILL_SERVERS', 'redis://localhost:7380'), token);
const [what = 'next', name = 'orders', n = '1'] = process.argv.slice(2);
try {
  await run(ids, token, what, name, Number(n));
} catch (error) {
  const again = error instanceof Problem ? error.outcome !== 'permanent' : isTransient(error);
  console.error(error.message, error.cause ?? '');
  process.exitCode = again ? 75 : 1; // EX_TEMPFAIL
} finally {
  ids.close();
}
