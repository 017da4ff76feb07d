// Ids from idmill over HTTP, with `fetch`: copy this file into a service.

import { setTimeout as sleep } from 'node:timers/promises';

const TRIES = 10;
const [PAUSE, LONGEST_PAUSE] = [20, 2000];
const TIMEOUT = 7000; // longer than the server's --timeout (5 s), after which it returns 503

/**
 * An error of the server, in the format of RFC 9457.
 *
 * `kind` is the kind of error (`not_found`, `exhausted`, `denied`, …). `outcome` decides whether to retry: you may
 * retry `transient` and `unknown`, which costs a gap at most; `permanent` errors stay until their cause is removed.
 */
export class Problem extends Error {
  static async of(response) {
    const said = await response.json().catch(() => ({})); // perhaps from a proxy
    const problem = new Problem(`${said.kind ?? 'unknown'}: ${said.detail ?? response.statusText}`);
    const outcome = said.outcome ?? ([429, 502, 503, 504].includes(response.status) ? 'transient' : 'permanent');
    const retryAfter = 1000 * (Number(response.headers.get('retry-after')) || 0);
    return Object.assign(problem, { status: response.status, kind: said.kind, outcome, retryAfter });
  }
}

/** Draws `n` ids, as BigInts, from the first of these servers (`http://…` or `https://…`) that answers. */
export async function draw(servers, name, n = 1, token = undefined) {
  const path = `/v1/sequences/${encodeURIComponent(name)}/ids?n=${n}`;
  for (let attempt = 0, pause = PAUSE; ; attempt++, pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    let wait = 0;
    try {
      return await request(servers[attempt % servers.length] + path, token);
    } catch (error) {
      if (error.outcome === 'permanent' || attempt === TRIES - 1) throw error;
      // Retry-After applies only after a round: another server may have ids in memory.
      if ((attempt + 1) % servers.length === 0) wait = error.retryAfter ?? 0;
    }
    // Random, so that clients do not all retry at the same time when a server is reachable again.
    await sleep(wait + pause * (0.5 + Math.random() / 2));
  }
}

async function request(url, token) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const response = await fetch(url, { method: 'POST', headers, signal: AbortSignal.timeout(TIMEOUT) });
  if (!response.ok) throw await Problem.of(response);
  // Ids beyond 2^53 are strings, since numbers would be rounded; BigInt reads both.
  return (await response.json()).ids.map(BigInt);
}
