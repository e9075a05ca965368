// Starts the console: who is signed in, the connection, and the page of the address.

import { Connection } from './ahp.js';
import { api } from './api.js';
import { announce, frame, h, head, keepTime, notify, write } from './dom.js';
import { ARCHIVED, NEEDS_INPUT } from './format.js';
import * as sessions from './pages/sessions.js';

const PAGES = {
  automations: () => import('./pages/automations.js'),
  run: () => import('./pages/automations.js'),
  runs: () => import('./pages/runs.js'),
  endpoints: () => import('./pages/endpoints.js'),
  bots: () => import('./pages/bots.js'),
  plugins: () => import('./pages/plugins.js'),
  users: () => import('./pages/users.js'),
  policies: () => import('./pages/policies.js'),
  usage: () => import('./pages/usage.js'),
  log: () => import('./pages/log.js'),
  health: () => import('./pages/health.js'),
  help: () => import('./pages/help.js'),
  session: () => import('./pages/session.js'),
};
const CHANGES = 'x-console://changes';
const $ = (id) => document.getElementById(id);

/** What pages share. */
const app = {
  me: undefined,
  connection: undefined,
  /** The sessions by URI. */
  sessions: new Map(),
  sessionsLoaded: false,
  sessionListeners: new Set(),
  topicListeners: new Set(),

  /** Calls `listener` when a session is added, removed or changed; returns what ends it. */
  onSessions(listener) {
    this.sessionListeners.add(listener);
    return () => this.sessionListeners.delete(listener);
  },

  /** Calls `listener` when something of these topics changed that no channel of the protocol has. */
  onTopic(topics, listener) {
    const listens = (topic) => (topic === 'all' || topics.includes(topic)) && listener();
    this.topicListeners.add(listens);
    return () => this.topicListeners.delete(listens);
  },

  /** Whether the caller holds a grant, as far as the page can tell. */
  may(grant) {
    const [subject, operation] = grant.split(':');
    const WRITES = [
      'put',
      'delete',
      'create',
      'update',
      'remove',
      'run',
      'replay',
      'send',
      'cancel',
      'answer',
    ];
    const group = WRITES.includes(operation) ? 'write' : 'read';
    return (this.me?.grants ?? ['*:*']).some((held) => {
      const [s, o] = held.split(':');
      return (s === '*' || s === subject) && ['*', operation, group].includes(o);
    });
  },
};

const told = frame(() => {
  let waiting = 0;
  for (const session of app.sessions.values()) {
    if ((session.status & NEEDS_INPUT) === NEEDS_INPUT && !(session.status & ARCHIVED)) waiting += 1;
  }
  const badge = $('waiting');
  badge.hidden = waiting === 0;
  write(badge, waiting ? `${waiting} waiting` : '');
  document.title = waiting ? `(${waiting}) ostler` : 'ostler';
  for (const listener of app.sessionListeners) listener();
});

/** What notifications change in the sessions. */
const SESSION_CHANGES = {
  'root/sessionAdded': (sessions, { summary }) => sessions.set(summary.resource, summary),
  'root/sessionRemoved': (sessions, { session }) => sessions.delete(session),
  'root/sessionSummaryChanged': (sessions, { session, changes }) => {
    const known = sessions.get(session);
    if (known) Object.assign(known, changes);
  },
};
/** The changes while the list is read, which may be older than they are. */
let changed;

function notified(method, params) {
  const change = SESSION_CHANGES[method];
  if (!change) return;
  changed?.push((sessions) => change(sessions, params));
  const waits = () => (app.sessions.get(params.session)?.status & NEEDS_INPUT) === NEEDS_INPUT;
  const waited = waits();
  change(app.sessions, params);
  if (waits() && !waited)
    announce(`${app.sessions.get(params.session).title || 'A session'} waits for input`);
  told();
}

async function loadSessions() {
  const { connection } = app;
  const all = new Map();
  const since = [];
  changed = since;
  let cursor;
  try {
    do {
      const page = await connection.request('listSessions', { limit: 250, ...(cursor && { cursor }) });
      for (const summary of page.items) all.set(summary.resource, summary);
      cursor = page.nextCursor;
    } while (cursor);
  } finally {
    if (changed === since) changed = undefined;
  }
  for (const change of since) change(all);
  app.sessions = all;
  app.sessionsLoaded = true;
  told();
}

function connect() {
  const { protocol, host } = location;
  const connection = new Connection(`${protocol === 'https:' ? 'wss' : 'ws'}://${host}/`, {
    onState: async (state) => {
      write($('state'), state === 'connected' ? 'Connected' : 'Reconnecting');
      if (state === 'connected') {
        // A lost connection is replaced, and the list is read over the new one.
        loadSessions().catch((error) => connection.isOpen && notify(error.message));
        return;
      }
      // Signed out, or the user was removed: the way back is the sign-in.
      const signedOut = await api('me').then(
        () => false,
        (error) => error.status === 401,
      );
      if (signedOut) start();
    },
    onRefused: notify,
  });
  connection.onNotification(notified);
  // Without an action the page has just subscribed, and what changed before was not reported to it.
  connection.subscribe(CHANGES, (_, action, error) => {
    if (!error) for (const listener of app.topicListeners) listener(action?.topic ?? 'all');
  });
  app.connection = connection;
  return connection.open();
}

let leave;
let shown = 0;
let started = 0;

async function show() {
  const [name = '', parameter] = location.hash.slice(2).split('/');
  const turn = ++shown;
  const main = $('main');
  for (const link of document.querySelectorAll('nav a')) {
    const here = link.getAttribute('href') === `#/${name || 'sessions'}`;
    if (here) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  menu(false);
  const page = PAGES[name] ? await PAGES[name]() : sessions;
  if (turn !== shown) return;
  leave?.();
  leave = undefined;
  main.replaceChildren();
  main.scrollTop = 0;
  try {
    leave = page.show(main, app, parameter && decodeURIComponent(parameter), name);
  } catch (error) {
    if (!(error instanceof URIError)) return notify(error.message);
    main.append(head('Not found'), h('p', { role: 'status' }, `The address ${location.hash} is not valid.`));
  }
}

function menu(open) {
  $('nav').classList.toggle('open', open);
  $('menu').setAttribute('aria-expanded', open);
}

async function start() {
  const turn = ++started;
  app.connection?.close();
  app.sessions = new Map();
  app.sessionsLoaded = false;
  leave?.();
  leave = undefined;
  const me = await api('me').catch((error) => error);
  if (turn !== started) return;
  if (me.status === 401) {
    $('nav').hidden = $('menu').hidden = true;
    write($('state'), '');
    const { show: signIn } = await import('./pages/sign-in.js');
    shown += 1;
    signIn($('main'), start);
    return;
  }
  $('nav').hidden = $('menu').hidden = false;
  app.me = me instanceof Error ? undefined : me;
  if (me instanceof Error) notify(`The HTTP API is not available here: ${me.message}`);
  write($('who'), app.me ? app.me.name : '');
  $('sign-out').hidden = !app.me?.signIn;
  const opened = connect();
  await show();
  await opened.catch(() => write($('state'), 'Reconnecting'));
}

$('menu').addEventListener('click', () => menu($('menu').getAttribute('aria-expanded') !== 'true'));
$('skip').addEventListener('click', (event) => {
  event.preventDefault();
  $('main').focus();
});
$('sign-out').addEventListener('click', async () => {
  await api('sign-out', {}).catch((error) => notify(error.message));
  start();
});
window.addEventListener('hashchange', async () => {
  await show();
  $('main').focus({ preventScroll: true });
});

const KEYS = {
  s: 'sessions',
  a: 'automations',
  r: 'runs',
  e: 'endpoints',
  b: 'bots',
  p: 'plugins',
  u: 'users',
  l: 'log',
  h: 'health',
};
let went = 0;
document.addEventListener('keydown', (event) => {
  const typing = event.target.closest('input, textarea, select');
  if (event.key === 'Escape' && typing) return event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === 'g') went = Date.now();
  else if (Date.now() - went < 1500 && KEYS[event.key]) location.hash = `#/${KEYS[event.key]}`;
  else if (event.key === '?') location.hash = '#/help';
  else if (event.key === '/') {
    const field = $('main').querySelector('[data-search], textarea');
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});

keepTime();
start();
