// Ids from idmill over HTTP, by `fetch`: copy this file into a service.

import { setTimeout as sleep } from 'node:timers/promises';

const TRIES = 10;
const [PAUSE, LONGEST_PAUSE] = [20, 2000];
const PATIENCE = 7000; // beyond the server's --patience (5 s), after which it answers 503

/**
 * What the server said instead of ids, as RFC 9457 has it.
 *
 * `kind` tells errors apart (`not_found`, `exhausted`, `denied`, …), and `outcome` what to do: `transient` and
 * `unknown` may be tried again, at the cost of a gap at most; `permanent` stays until somebody changes something.
 */
export class Problem extends Error {
  static async of(response) {
    const said = await response.json().catch(() => ({})); // of a proxy in between, perhaps
    const problem = new Problem(`${said.kind ?? 'unknown'}: ${said.detail ?? response.statusText}`);
    const outcome = said.outcome ?? ([429, 502, 503, 504].includes(response.status) ? 'transient' : 'permanent');
    const retryAfter = 1000 * (Number(response.headers.get('retry-after')) || 0);
    return Object.assign(problem, { status: response.status, kind: said.kind, outcome, retryAfter });
  }
}

/** `n` ids, as BigInts, from the first of these servers (`http://…` or `https://…`) that answers. */
export async function draw(servers, name, n = 1, token = undefined) {
  const path = `/v1/sequences/${encodeURIComponent(name)}/ids?n=${n}`;
  for (let attempt = 0, pause = PAUSE; ; attempt++, pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    let wait = 0;
    try {
      return await request(servers[attempt % servers.length] + path, token);
    } catch (error) {
      if (error.outcome === 'permanent' || attempt === TRIES - 1) throw error;
      // Another server may have ids at hand: only after a round is it time to wait for this one.
      if ((attempt + 1) % servers.length === 0) wait = error.retryAfter ?? 0;
    }
    // Not all clients at the same time, when a server is back.
    await sleep(wait + pause * (0.5 + Math.random() / 2));
  }
}

async function request(url, token) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const response = await fetch(url, { method: 'POST', headers, signal: AbortSignal.timeout(PATIENCE) });
  if (!response.ok) throw await Problem.of(response);
  // Beyond 2^53 they are strings, since a number would be rounded; BigInt reads both.
  return (await response.json()).ids.map(BigInt);
}
