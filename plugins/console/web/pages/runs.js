// The runs of all automations: found by state and by their words, and updated as they change.

import { api } from '../api.js';
import { action, frame, h, head, keyed, notify, running, since, table, tag, write } from '../dom.js';
import { duration, RUN_KINDS, runLink, sessionLink } from '../format.js';

const PAGE = 50;

/** What a run is searched by: the last word may be the beginning of one. */
const words = (text) => text.trim() && `${text.trim().replace(/\*$/, '')}*`;

function took({ startedAt, endedAt }) {
  if (!startedAt) return '';
  return endedAt ? duration(Date.parse(endedAt) - Date.parse(startedAt)) : running(startedAt);
}

const COLUMNS = [
  ['Run', (run) => h('a', { href: runLink(run.uri) }, since(run.acceptedAt))],
  ['Automation', (run) => run.title ?? run.automation],
  ['State', (run) => tag(run.state, RUN_KINDS[run.state])],
  ['Started by', (run) => run.triggeredBy ?? (run.trigger ? `trigger ${run.trigger}` : '')],
  ['Took', took, true],
  ['Session', (run) => run.session && h('a', { href: sessionLink(run.session) }, 'Open')],
  ['Error', (run) => run.error?.slice(0, 200)],
];

export function show(main) {
  const search = h('input', {
    type: 'search',
    id: 'run-search',
    'data-search': true,
    placeholder: 'Words of the event, error, title or owner',
  });
  const state = h(
    'select',
    { id: 'run-state' },
    h('option', { value: '' }, 'All'),
    Object.keys(RUN_KINDS).map((name) => h('option', { value: name }, name)),
  );
  const summary = h('p', { class: 'quiet', role: 'status' }, 'Loading runs');
  const rows = table('Runs', COLUMNS, []);
  const body = rows.querySelector('tbody');
  const more = action('Earlier runs', () => load(next));
  more.hidden = true;
  let runs = new Map();
  let next;
  let asked = 0;

  const draw = frame(() => {
    const listed = [...runs.values()].sort((a, b) => (a.acceptedAt < b.acceptedAt ? 1 : -1));
    keyed(
      body,
      listed,
      // A run that has changed is another row.
      (run) => JSON.stringify(run),
      (run) => {
        const cells = COLUMNS.map(([, cell, number]) =>
          h('td', number ? { class: 'number' } : {}, cell(run) ?? ''),
        );
        return h('tr', {}, cells);
      },
    );
    rows.hidden = !listed.length;
    more.hidden = !next;
    const found = search.value.trim() || state.value ? 'matching runs' : 'runs';
    write(
      summary,
      listed.length ? `${listed.length} ${found}${next ? ', and earlier ones' : ''}` : `No ${found}.`,
    );
  });

  /** Changes while a page is being read, which may be older than they are. */
  let changed;
  const change = (apply) => {
    changed?.push(apply);
    apply();
    draw();
  };

  /** Reads a page: the newest runs, or those after a cursor. */
  const load = async (cursor) => {
    const turn = ++asked;
    changed = [];
    const query = { limit: PAGE, text: words(search.value), state: state.value, cursor };
    const given = Object.entries(query).filter(([, value]) => value);
    try {
      const page = await api(`runs?${new URLSearchParams(given)}`);
      if (turn !== asked) return;
      if (!cursor) runs = new Map();
      for (const run of page.runs) runs.set(run.uri, run);
      for (const apply of changed) apply();
      next = page.next;
      draw();
    } catch (error) {
      if (turn === asked) write(summary, error.message);
    } finally {
      if (turn === asked) changed = undefined;
    }
  };

  let wait;
  const later = (time) => {
    clearTimeout(wait);
    wait = setTimeout(load, time);
  };
  const changes = new EventSource('/api/runs');
  const on = (name, listener) =>
    changes.addEventListener(name, (event) => {
      try {
        listener(JSON.parse(event.data));
      } catch (error) {
        notify(error.message);
      }
    });
  // Nothing is missed from here on.
  on('ready', () => load());
  on('reload', () => load());
  on('run', (run) => {
    const fits = !state.value || run.state === state.value;
    if (runs.has(run.uri) || (fits && !search.value.trim())) {
      change(() => (fits ? runs.set(run.uri, run) : runs.delete(run.uri)));
    } else if (fits) later(500);
  });
  on('removed', ({ uri, automation }) =>
    change(() => {
      for (const run of runs.values()) {
        if (run.uri === uri || run.automation === automation) runs.delete(run.uri);
      }
    }),
  );
  changes.addEventListener('error', () => {
    if (changes.readyState === EventSource.CLOSED) load();
  });
  search.addEventListener('input', () => later(150));
  state.addEventListener('change', () => load());
  main.append(
    head('Runs'),
    h(
      'div',
      { class: 'bar' },
      h('label', { class: 'hidden', for: 'run-search' }, 'Search runs'),
      h('div', { class: 'grow' }, search),
      h('label', { class: 'hidden', for: 'run-state' }, 'State'),
      h('div', {}, state),
    ),
    summary,
    rows,
    h('div', {}, more),
  );
  rows.hidden = true;
  return () => {
    changes.close();
    clearTimeout(wait);
    draw.stop();
  };
}
