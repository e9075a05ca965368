// The runs of all automations: found by state and by their words, and updated as they change.

import { api, throttled } from '../api.js';
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

  // Whether a run has the words, only the host can say.
  const again = throttled(() => load(), 500);
  const heard = {
    // Nothing is missed from here on.
    ready: () => load(),
    reload: () => load(),
    run: (run) => {
      const fits = !state.value || run.state === state.value;
      const searched = search.value.trim();
      if (fits && searched && !runs.has(run.uri)) again();
      change(() => {
        if (!fits) runs.delete(run.uri);
        else if (!searched || runs.has(run.uri)) runs.set(run.uri, run);
      });
    },
    removed: ({ uri, automation }) =>
      change(() => {
        for (const run of runs.values()) {
          if (run.uri === uri || run.automation === automation) runs.delete(run.uri);
        }
      }),
  };
  let changes;
  const listen = () => {
    changes = new EventSource('/api/runs');
    for (const [name, listener] of Object.entries(heard)) {
      changes.addEventListener(name, (event) => {
        try {
          listener(JSON.parse(event.data));
        } catch (error) {
          notify(error.message);
        }
      });
    }
    changes.addEventListener('error', () => {
      // The browser repeats a lost request, not one that was refused.
      if (changes.readyState !== EventSource.CLOSED) return;
      load();
      reopen();
    });
  };
  const reopen = throttled(listen, 5000);
  listen();
  let typed;
  search.addEventListener('input', () => {
    clearTimeout(typed);
    typed = setTimeout(load, 150);
  });
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
    reopen.stop();
    again.stop();
    clearTimeout(typed);
    draw.stop();
  };
}
