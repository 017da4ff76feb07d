// Updates the page. The server renders it, selects the rows and formats every figure. This script only inserts text,
// never markup.
'use strict';

const LONGEST_PAUSE = 30_000;
const FIRST_PAUSE = 500;
// The server sends an event every second. After this time the connection is considered lost.
const SILENCE = 6_000;
// The server ends each stream after a minute. A stream that ended after this time is replaced at once.
const LONG = 30_000;
const SAMPLES = 60;
const MOST_HISTORIES = 2_000;
const TOKEN = 'idmill.token';
const THEME = 'idmill.theme';

const at = (id) => document.getElementById(id);
const body = document.body;
const asked = new URLSearchParams(location.search);
const wish = { search: asked.get('search') ?? '', sort: asked.get('sort') ?? 'health', page: Number(asked.get('page')) || 1 };
const histories = new Map();

let attempt = null; // the current stream; older ones are ignored
let pause = FIRST_PAUSE;
let timer = 0;
let lastAt = null;
let heardAt = 0;
let known = { state: null, troubles: null, summary: null };

// If the browser blocks storage, values last only while the page is open.
function keep(storage, key, value) {
  try {
    if (value === null) storage().removeItem(key); else storage().setItem(key, value);
  } catch { /* as above */ }
}
function kept(storage, key) {
  try { return storage().getItem(key); } catch { return null; }
}
const ofTab = () => sessionStorage;
const ofBrowser = () => localStorage;
let token = kept(ofTab, TOKEN);

function write(element, text) {
  if (element && element.textContent !== text) element.textContent = text;
}
function announce(text) {
  write(at('news'), text);
}

// --- The stream

function query() {
  const params = new URLSearchParams({ sort: wish.sort });
  if (wish.search) params.set('search', wish.search);
  if (wish.page > 1) params.set('page', wish.page);
  return params.toString();
}

async function connect() {
  clearTimeout(timer);
  attempt?.abort();
  const mine = attempt = new AbortController();
  const headers = { Accept: 'text/event-stream' };
  if (token) headers.Authorization = `Bearer ${token}`;
  const begun = heardAt = Date.now();
  let refusal = null;
  try {
    const response = await fetch(`/v1/events?${query()}`, {
      headers, signal: mine.signal, cache: 'no-store', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer',
    });
    if (response.status === 401 || response.status === 403) {
      const problem = await response.json().catch(() => ({}));
      if (mine === attempt) lock(token ? problem.detail ?? 'The token was rejected.' : '');
      return;
    }
    // A link can have an unknown sort or page: the defaults are requested instead.
    if (response.status === 400) Object.assign(wish, { sort: 'health', page: 1 });
    if (response.ok) {
      const last = await read(response.body, mine);
      if (mine === attempt && last === 'look' && Date.now() - begun > LONG) {
        connect();
        return;
      }
    } else refusal = (await response.json().catch(() => ({}))).detail ?? `it answered ${response.status}`;
  } catch { /* disconnected, or timed out */ }
  if (mine === attempt) lost(refusal);
}

// Returns the name of the last event.
async function read(stream, mine) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  let last = null;
  for (;;) {
    const { value, done } = await reader.read();
    if (done || mine !== attempt) return last;
    text += value;
    let end;
    while ((end = text.indexOf('\n\n')) >= 0) {
      last = hear(text.slice(0, end));
      text = text.slice(end + 2);
      if (mine !== attempt) return last;
    }
  }
}

function hear(event) {
  const field = (name) => event.split('\n').find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
  const data = JSON.parse(field('data'));
  const name = field('event');
  if (name === 'refused') {
    lock(data.detail);
    return name;
  }
  heardAt = Date.now();
  pause = FIRST_PAUSE;
  unlock();
  body.dataset.link = 'live';
  write(at('link'), '');
  show(data);
  return name;
}

// The stream has ended: marks the figures as old, and reconnects after growing pauses. A temporary refusal is shown with
// its reason, for example too many connections of the token.
function lost(refusal) {
  attempt = null;
  body.dataset.link = 'lost';
  const isOpen = body.dataset.access === 'open';
  const old = isOpen ? ` The figures are from ${lastAt ?? 'the time when the page was loaded'}.` : '';
  write(at('link'), `${refusal ? `The server temporarily rejects this page: ${refusal}.` : 'Not connected to the server.'}${old} The page retries.`);
  write(at('locked-title'), refusal ? 'The server temporarily rejects this token' : 'Not connected to the server');
  if (isOpen) showOld();
  timer = setTimeout(connect, pause * (0.75 + Math.random() / 2));
  pause = Math.min(pause * 2, LONGEST_PAUSE);
}

// No state is shown as current: the last one is old.
function showOld() {
  const field = (name) => document.querySelector(`[data-field="${name}"]`);
  const state = document.querySelector('.state');
  if (state.dataset.state) write(field('reason'), `It was ${field('state').textContent.toLowerCase()} at ${field('at').textContent}.`);
  state.dataset.state = '';
  write(field('state'), 'Not connected');
  document.title = `○ Not connected – ${field('name').textContent} – idmill`;
}

setInterval(() => {
  if (attempt && Date.now() - heardAt > SILENCE) attempt.abort();
}, 1_000);
addEventListener('online', () => { if (body.dataset.link === 'lost') connect(); });

// --- Updates

function show(view) {
  const { server } = view;
  document.querySelector('.state').dataset.state = server.state;
  for (const element of document.querySelectorAll('[data-field]')) {
    write(element, server.shown[element.dataset.field] ?? server[element.dataset.field] ?? '');
  }
  lastAt = server.shown.at;
  document.title = server.shown.title;
  tell(view);
  wish.page = view.page;
  showRows(view.sequences);
  showPages(view);
  showSort();
}

// Announces important changes to screen readers. Every update would be too much.
function tell({ server, sequences }) {
  const { state, summary } = server.shown;
  const troubles = sequences.map(({ shown }) => [shown.name, shown.health]).filter(([, word]) => word !== 'serving').map(([name, word]) => `${name} is ${word}`);
  const news = [];
  if (known.state !== null && known.state !== state) news.push(`The server is ${state.toLowerCase()}. ${server.shown.reason}`);
  if (known.troubles !== null) {
    news.push(...troubles.filter((one) => !known.troubles.includes(one)).slice(0, 3));
    if (known.troubles.length > 0 && troubles.length === 0) news.push('All listed sequences are serving.');
  }
  if (known.summary !== null && known.summary !== summary) news.push(summary);
  if (news.length > 0) announce(news.join(' '));
  known = { state, troubles, summary };
}

function showRows(sequences) {
  const rows = at('rows');
  const before = new Map([...rows.children].map((row) => [row.ofSequence ?? row.querySelector('[data-cell="name"]').textContent, row]));
  const now = sequences.map((sequence) => {
    const row = before.get(sequence.name) ?? at('row').content.querySelector('tr').cloneNode(true);
    fill(row, sequence);
    return row;
  });
  if (now.length !== rows.children.length || now.some((row, index) => row !== rows.children[index])) rows.replaceChildren(...now);
}

function fill(row, sequence) {
  row.ofSequence = sequence.name;
  row.dataset.health = sequence.shown.health;
  for (const cell of row.querySelectorAll('[data-cell]')) {
    write(cell, sequence.shown[cell.dataset.cell] ?? sequence[cell.dataset.cell] ?? '');
  }
  row.querySelector('.bar .part').setAttribute('width', sequence.shown.part);
  const history = remember(sequence);
  for (const spark of row.querySelectorAll('[data-spark]')) {
    spark.firstElementChild.setAttribute('d', line(history[spark.dataset.spark]));
  }
}

function remember({ name, rate, remaining }) {
  const history = histories.get(name) ?? { rate: [], remaining: [] };
  histories.delete(name);
  histories.set(name, history);
  if (histories.size > MOST_HISTORIES) histories.delete(histories.keys().next().value);
  for (const [samples, value] of [[history.rate, rate ?? 0], [history.remaining, remaining]]) {
    samples.push(value);
    if (samples.length > SAMPLES) samples.shift();
  }
  return history;
}

// The path of a sparkline of 64 by 18. The newest sample is on the right.
function line(samples) {
  const most = Math.max(...samples, 1e-9);
  const from = SAMPLES - samples.length;
  return samples
    .map((value, index) => {
      const x = ((from + index) / (SAMPLES - 1)) * 64;
      return `${index ? 'L' : 'M'}${x.toFixed(1)} ${(17 - (value / most) * 16).toFixed(1)}`;
    })
    .join('');
}

// --- Sort, search and pages

function link(sort, page) {
  const params = new URLSearchParams({ sort });
  if (wish.search) params.set('search', wish.search);
  if (page > 1) params.set('page', page);
  return `?${params}`;
}

function showPages({ page, pages }) {
  for (const [id, to, there] of [['previous', page - 1, page > 1], ['next', page + 1, page < pages]]) {
    at(id).hidden = !there;
    at(id).href = link(wish.sort, to);
  }
}

function showSort() {
  const falling = wish.sort.startsWith('-');
  const by = wish.sort.replace('-', '');
  for (const heading of document.querySelectorAll('thead a')) {
    const { sort } = heading.dataset;
    const mine = sort === by;
    const next = mine ? !falling : 'falling' in heading.dataset;
    heading.href = link((next ? '-' : '') + sort, 1);
    heading.closest('th').setAttribute('aria-sort', mine ? (falling ? 'descending' : 'ascending') : 'none');
  }
  const options = [...at('sort').options];
  const option = options.find((one) => one.value === wish.sort) ?? options.find((one) => one.value.replace('-', '') === by);
  if (option) at('sort').value = option.value;
}

function want(change) {
  Object.assign(wish, { page: 1 }, change);
  history.replaceState(null, '', link(wish.sort, wish.page));
  showSort();
  if (token || body.dataset.access === 'open') connect();
}

document.addEventListener('click', (event) => {
  const anchor = event.target.closest('thead a, .pages a');
  if (!anchor || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const params = new URLSearchParams(anchor.search);
  want({ sort: params.get('sort'), page: Number(params.get('page')) || 1 });
});

let typing = 0;
const search = () => {
  clearTimeout(typing);
  if (at('search').value !== wish.search) want({ search: at('search').value });
};
at('search').addEventListener('input', () => {
  clearTimeout(typing);
  typing = setTimeout(search, 200);
});
at('sort').addEventListener('change', () => want({ sort: at('sort').value }));
at('find').addEventListener('submit', (event) => {
  event.preventDefault();
  search();
});
at('find').querySelector('button').hidden = true;

// --- The token

function lock(why) {
  attempt?.abort();
  attempt = null;
  clearTimeout(timer);
  token = null;
  keep(ofTab, TOKEN, null);
  histories.clear();
  known = { state: null, troubles: null, summary: null };
  lastAt = null;
  at('rows').replaceChildren();
  at('forget').hidden = true;
  write(at('link'), '');
  body.dataset.link = 'none';
  body.dataset.access = 'locked';
  document.title = 'idmill';
  write(at('locked-title'), 'A token is required');
  write(at('token-error'), why ? why[0].toUpperCase() + why.slice(1) : '');
  at('token').value = '';
  at('token').focus();
}

function unlock() {
  at('forget').hidden = !token;
  if (body.dataset.access === 'open') return;
  body.dataset.access = 'open';
  write(at('token-error'), '');
  at('token').value = '';
  at('search').focus();
}

at('token-form').hidden = false;
at('token-form').addEventListener('submit', (event) => {
  event.preventDefault();
  token = at('token').value.trim();
  if (!token) return;
  keep(ofTab, TOKEN, token);
  write(at('token-error'), '');
  connect();
});
at('forget').addEventListener('click', () => lock(''));
for (const element of document.querySelectorAll('.without-script')) element.hidden = true;

// --- The theme

const theme = at('theme');
theme.value = document.documentElement.dataset.theme ?? 'auto';
theme.closest('label').hidden = false;
theme.addEventListener('change', () => {
  if (theme.value === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
  keep(ofBrowser, THEME, theme.value === 'auto' ? null : theme.value);
});

if (token || body.dataset.access === 'open') connect();
else at('token').focus();
