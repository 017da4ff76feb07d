// Closes a client while it connects to a server that does not reply. The process must end.

import { createServer } from 'node:net';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { Ids } from './idmill.js';

const WAYS = { now: () => {}, turn: () => turn(), later: () => sleep(20) };

const server = createServer((socket) => socket.on('error', () => {}).unref());
server.unref().listen(0, '127.0.0.1', async () => {
  const ids = new Ids([`redis://127.0.0.1:${server.address().port}`]);
  await WAYS[process.argv[2]]();
  ids.close();
});
