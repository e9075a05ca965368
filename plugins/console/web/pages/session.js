// A session: its chats with the streaming turn, prompt, queue, approvals and questions, its changes and its terminals.

import { Turns } from '../chat.js';
import { action, announce, facts, frame, h, keyed, notify, since, table, tag, write } from '../dom.js';
import { count, NEEDS_INPUT, RUNNING, short, status } from '../format.js';

/** How many turns are asked for at once. */
const TURNS = 20;
/** More lines of a difference are not compared. */
const LINES = 3000;
/** How much of a terminal is shown. */
const TERMINAL = 60000;

/** The lines of a difference: `[sign, text]`. */
export function differences(before, after) {
  const [a, b] = [before.split('\n'), after.split('\n')];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let [endA, endB] = [a.length, b.length];
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) {
    endA--;
    endB--;
  }
  const [x, y] = [a.slice(start, endA), b.slice(start, endB)];
  const lines = a.slice(Math.max(0, start - 3), start).map((line) => [' ', line]);
  if (x.length * y.length > 400000) {
    lines.push(...x.map((line) => ['-', line]), ...y.map((line) => ['+', line]));
  } else {
    // The longest common subsequence, from the end.
    const width = y.length + 1;
    const best = new Uint32Array((x.length + 1) * width);
    for (let i = x.length - 1; i >= 0; i--) {
      for (let j = y.length - 1; j >= 0; j--) {
        best[i * width + j] =
          x[i] === y[j]
            ? best[(i + 1) * width + j + 1] + 1
            : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
      }
    }
    let [i, j] = [0, 0];
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) {
        lines.push([' ', x[i++]]);
        j++;
      } else if (j >= y.length || (i < x.length && best[(i + 1) * width + j] >= best[i * width + j + 1])) {
        lines.push(['-', x[i++]]);
      } else lines.push(['+', y[j++]]);
    }
  }
  lines.push(...a.slice(endA, endA + 3).map((line) => [' ', line]));
  return lines;
}

/** A changed file, whose difference is read when it is opened. */
function changedFile(file, connection) {
  const { before, after, diff } = file.edit;
  const name = short(after?.uri ?? before?.uri);
  const body = h('div');
  const sum = diff ? `, ${count(diff.added)} added, ${count(diff.removed)} removed` : '';
  const known = file._meta?.['ostler.notCompared'] === undefined;
  const kind = !known ? 'not compared' : before ? (after ? 'changed' : 'deleted') : 'added';
  const read = (side) => (side?.content?.uri ? connection.read(side.content.uri) : '');
  return h(
    'details',
    {
      class: 'card',
      ontoggle: async (event) => {
        if (!event.currentTarget.open || body.childElementCount) return;
        try {
          const texts = await Promise.all([read(before), read(after)]);
          const lines = differences(...texts);
          const names = { '+': 'plus', '-': 'minus', ' ': '' };
          const shown = lines
            .slice(0, LINES)
            .map(([sign, text]) => h('span', { class: names[sign] }, `${sign} ${text}`));
          if (lines.length > LINES) shown.push(h('span', {}, `${lines.length - LINES} more lines`));
          body.replaceChildren(
            h('pre', { class: 'diff', tabindex: '0', 'aria-label': `Changes of ${name}` }, shown),
          );
        } catch (error) {
          body.replaceChildren(h('p', { class: 'bad' }, error.message));
        }
      },
    },
    h('summary', {}, name, ' ', tag(kind), h('span', { class: 'quiet small' }, sum)),
    body,
  );
}

/** The changes of a session, live. Returns what ends it. */
function changes(panel, session, connection) {
  const ends = [];
  const scopes = (session.changesets ?? []).filter((one) => !one.uriTemplate.includes('{'));
  if (!scopes.length) panel.replaceChildren(h('p', { class: 'quiet' }, 'This session reports no changes.'));
  for (const scope of scopes) {
    const files = h('div');
    const state = h('p', { class: 'quiet small' });
    panel.append(h('section', {}, h('h2', {}, scope.label), state, files));
    const draw = (changeset, _, error) => {
      const known = changeset?.files ?? [];
      write(
        state,
        error?.message ?? changeset?.error?.message ?? `${known.length} files, ${changeset?.status}`,
      );
      // A file whose contents changed is another element, which is read again.
      const looks = (file) => file.id + JSON.stringify(file.edit);
      keyed(files, known, looks, (file) => changedFile(file, connection));
    };
    ends.push(connection.subscribe(scope.uriTemplate, draw));
  }
  return () => ends.forEach((end) => end());
}

/** Text of a terminal without what moves its cursor and colors it. */
export function plain(text) {
  return text
    .replace(/\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\[[0-9;?]*[ -/]*[@-~]|[@-Z\\-_])/g, '')
    .replace(/\r(?!\n)|[\x00-\x08\x0e-\x1f]/g, '');
}

/** The terminals of a session, read-only and live. */
function terminals(panel, uri, connection) {
  const open = new Map();
  const list = h('div');
  const none = h('p', { class: 'quiet' }, 'This session has no terminals.');
  panel.replaceChildren(list, none);
  const make = (info) => {
    const screen = h('pre', { tabindex: '0', 'aria-label': `Output of ${info.title}` });
    let state;
    const draw = frame(() => {
      const texts = (state?.content ?? []).map((one) =>
        one.type === 'command' ? `$ ${one.commandLine}\n${one.output}` : (one.value ?? ''),
      );
      const bottom = screen.scrollTop + screen.clientHeight >= screen.scrollHeight - 20;
      write(screen, plain(texts.join('').slice(-TERMINAL)));
      if (bottom) screen.scrollTop = screen.scrollHeight;
    });
    const end = connection.subscribe(info.resource, (now, _, error) => {
      if (error) return write(screen, error.message);
      state = now;
      draw();
    });
    open.set(info.resource, end);
    return h('section', { class: 'card' }, h('h2', {}, info.title || 'Terminal'), screen);
  };
  const end = connection.subscribe('ahp-root://', (root) => {
    const own = (root?.terminals ?? []).filter((one) => one.claim?.session === uri);
    none.hidden = own.length > 0;
    for (const [resource, close] of open) {
      if (own.some((one) => one.resource === resource)) continue;
      close();
      open.delete(resource);
    }
    keyed(list, own, (one) => one.resource, make);
  });
  return () => {
    end();
    for (const close of open.values()) close();
  };
}

/** A chat with its prompt. Returns what ends it. */
function chat(panel, uri, app) {
  const { connection } = app;
  const scroll = h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Conversation' });
  const turnsElement = h('div');
  const earlier = action('Load earlier turns', () =>
    connection.request('fetchTurns', { channel: uri, cursor: state?.turnsNextCursor }),
  );
  earlier.hidden = true;
  scroll.append(earlier, turnsElement);
  const queue = h('ul', { class: 'queue', 'aria-label': 'Queued messages' });
  const field = h('textarea', {
    id: 'prompt',
    rows: '2',
    'aria-keyshortcuts': 'Control+Enter',
    placeholder: 'Message to the agent',
  });
  const send = h('button', { class: 'primary' }, 'Send');
  const steer = action('Steer', () => put('steering'));
  const cancel = action(
    'Cancel turn',
    () => {
      const { id, startedAt } = state.activeTurn;
      const duration = Math.max(0, Date.now() - Date.parse(startedAt)) || 0;
      connection.dispatch(uri, { type: 'chat/turnCancelled', turnId: id, duration });
    },
    'danger',
  );
  let state;
  let announced;

  const message = () => ({ text: field.value, origin: { kind: 'user' } });
  const put = (kind) => {
    if (!field.value.trim()) return;
    connection.dispatch(uri, {
      type: 'chat/pendingMessageSet',
      kind,
      id: crypto.randomUUID(),
      message: message(),
    });
    field.value = '';
  };
  const submit = () => {
    if (!field.value.trim()) return;
    follows = true;
    if (state?.activeTurn) return put('queued');
    connection.dispatch(uri, {
      type: 'chat/turnStarted',
      turnId: crypto.randomUUID(),
      startedAt: new Date().toISOString(),
      message: message(),
    });
    field.value = '';
  };
  const form = h(
    'form',
    {
      class: 'prompt',
      onsubmit: (event) => {
        event.preventDefault();
        try {
          submit();
        } catch (error) {
          notify(error.message);
        }
      },
    },
    queue,
    h('label', { class: 'hidden', for: 'prompt' }, 'Message to the agent'),
    field,
    h(
      'div',
      { class: 'row' },
      send,
      steer,
      cancel,
      h('span', { class: 'quiet small' }, 'Control and Enter send'),
    ),
  );
  field.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    form.requestSubmit();
  });
  panel.replaceChildren(scroll, form);

  const turns = new Turns(turnsElement, { dispatch: (one) => connection.dispatch(uri, one) });
  const pending = (kind) => (one) =>
    h(
      'li',
      {},
      tag(kind),
      h('span', { class: 'grow text' }, one.message.text),
      action('Remove', () =>
        connection.dispatch(uri, { type: 'chat/pendingMessageRemoved', kind, id: one.id }),
      ),
    );
  // The view is at the end until the reader moves it up, and again once it is moved there, however the text grows meanwhile.
  let follows = true;
  let top = 0;
  const isAtEnd = () => scroll.scrollTop + scroll.clientHeight >= scroll.scrollHeight - 4;
  scroll.addEventListener(
    'scroll',
    () => {
      if (scroll.scrollTop < top || isAtEnd()) follows = isAtEnd();
      top = scroll.scrollTop;
    },
    { passive: true },
  );
  const follow = () => {
    if (follows) scroll.scrollTop = scroll.scrollHeight;
  };
  const sizes = new ResizeObserver(follow);
  sizes.observe(turnsElement);
  sizes.observe(scroll);
  const draw = frame(() => {
    if (!state) return;
    const remains = turns.draw(state);
    earlier.hidden = !state.turnsNextCursor;
    const active = state.activeTurn;
    write(send, active ? 'Queue' : 'Send');
    steer.hidden = cancel.hidden = !active;
    const steering = state.steeringMessage ? [{ ...state.steeringMessage, kind: 'steering' }] : [];
    const queued = (state.queuedMessages ?? []).map((one) => ({ ...one, kind: 'queued' }));
    keyed(
      queue,
      [...steering, ...queued],
      (one) => one.id,
      (one) => pending(one.kind)(one),
    );
    queue.hidden = !steering.length && !queued.length;
    follow();
    if (remains) draw();
  });

  /** Says what a screen reader is to say: that a turn goes on, waits or has ended, and how its answer begins. */
  const say = (one) => {
    if (one.type === 'chat/turnStarted') announced = announce('The agent answers');
    if (one.type === 'chat/turnComplete') {
      const text =
        state.turns
          .at(-1)
          ?.responseParts.filter((part) => part.kind === 'markdown')
          .map((part) => part.content)
          .join(' ') ?? '';
      announce(`The answer is complete: ${text.slice(0, 400)}`);
    }
    if (one.type === 'chat/turnCancelled') announce('The turn was cancelled');
    if (one.type === 'chat/error') announce('The turn failed');
    if (one.type === 'chat/toolCallReady' && !one.confirmed) announce('A call waits for approval');
    if (one.type === 'chat/inputRequested') announce('The agent asks a question');
    return announced;
  };
  const end = connection.subscribe(
    uri,
    (now, one, error) => {
      if (error) return panel.replaceChildren(h('p', { class: 'bad' }, error.message));
      state = now;
      if (one) say(one);
      draw();
    },
    { turns: TURNS },
  );
  return () => {
    sizes.disconnect();
    draw.stop();
    end();
  };
}

const PANELS = { chat: 'Chat', changes: 'Changes', terminals: 'Terminals', about: 'About' };

export function show(main, app, uri) {
  const { connection } = app;
  let panelEnd;
  let shown = '';
  let current = 'chat';
  let chosen;
  let session;
  const title = h('h1', { class: 'grow' }, 'Session');
  const state = h('span', { class: 'tag' });
  const panel = h('div', { class: 'column', role: 'tabpanel', id: 'panel' });
  const waiting = h('div', { class: 'row' });
  const chats = h('select', { 'aria-label': 'Chat', onchange: () => open('chat', chats.value) });
  const select = (event, name) => {
    const names = Object.keys(PANELS);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(name) + step + names.length) % names.length];
    open(next);
    document.getElementById(`tab-${next}`).focus();
  };
  const tabs = Object.entries(PANELS).map(([name, label]) =>
    h(
      'button',
      {
        type: 'button',
        role: 'tab',
        id: `tab-${name}`,
        'aria-controls': 'panel',
        onclick: () => open(name),
        onkeydown: (event) => select(event, name),
      },
      label,
    ),
  );

  const open = (name, resource) => {
    current = name;
    if (resource) chosen = resource;
    const target = chosen ?? session?.defaultChat ?? session?.chats[0]?.resource;
    const scopes = JSON.stringify(session?.changesets ?? []);
    const key = { chat: target, changes: scopes, about: JSON.stringify(session), terminals: '' }[name] ?? '';
    for (const one of tabs) {
      const here = one.id === `tab-${name}`;
      one.setAttribute('aria-selected', here);
      one.tabIndex = here ? 0 : -1;
      one.classList.toggle('primary', here);
    }
    panel.setAttribute('aria-labelledby', `tab-${name}`);
    if (!session || shown === name + key) return;
    shown = name + key;
    panelEnd?.();
    panelEnd = undefined;
    panel.replaceChildren();
    if (name === 'chat' && target) panelEnd = chat(panel, target, app);
    if (name === 'changes') panelEnd = changes(panel, session, connection);
    if (name === 'terminals') panelEnd = terminals(panel, uri, connection);
    if (name === 'about') panel.append(...about(session, uri, connection));
  };

  const draw = () => {
    const [word, kind] = status(session.status);
    write(title, session.title || 'Untitled session');
    write(state, session.lifecycle === 'creating' ? 'starting' : word);
    state.className = `tag ${kind}`;
    chats.hidden = session.chats.length < 2;
    const target = chosen ?? session.defaultChat ?? session.chats[0]?.resource;
    keyed(
      chats,
      session.chats,
      (one) => one.resource,
      (one) => h('option', { value: one.resource }),
      (option, one) => write(option, one.title || 'Chat'),
    );
    if (target) chats.value = target;
    const others = (session.inputNeeded ?? []).filter((one) => one.chat && one.chat !== target);
    keyed(
      waiting,
      others,
      (one) => one.id,
      (one) =>
        action(
          `Waiting: ${session.chats.find((other) => other.resource === one.chat)?.title || 'another chat'}`,
          () => open('chat', one.chat),
        ),
    );
    open(current);
  };
  const asked = frame(() => session && draw());
  const end = connection.subscribe(uri, (now, _, error) => {
    if (error) {
      main.replaceChildren(
        h('h1', {}, 'Session'),
        h('p', { class: 'bad' }, error.message),
        h('a', { href: '#/sessions' }, 'All sessions'),
      );
      return;
    }
    session = now;
    asked();
  });
  // What the listing says of the session and its own channel does not.
  const endList = app.onSessions(() => {
    const row = app.sessions.get(uri);
    if (!row || !session) return;
    Object.assign(session, { status: row.status });
    asked();
  });
  main.append(
    h(
      'div',
      { class: 'column' },
      h(
        'div',
        { class: 'bar' },
        h('a', { href: '#/sessions', 'aria-label': 'All sessions' }, 'Sessions'),
        title,
        state,
      ),
      h(
        'div',
        { class: 'bar' },
        h('div', { class: 'row', role: 'tablist', 'aria-label': 'Parts of the session' }, tabs),
        chats,
        waiting,
      ),
      panel,
    ),
  );
  open('chat');
  return () => {
    end();
    endList();
    asked.stop();
    panelEnd?.();
  };
}

function about(session, uri, connection) {
  const dispose = action(
    'Delete session',
    async (button) => {
      if (button.dataset.sure) {
        await connection.request('disposeSession', { channel: uri });
        location.hash = '#/sessions';
        return;
      }
      button.dataset.sure = '1';
      write(button, 'Delete with all chats?');
    },
    'danger',
  );
  return [
    facts([
      ['Agent', session.provider],
      ['Owner', session._meta?.['ostler.owner']],
      ['Model', session._meta?.['ostler.model']],
      ['Directories', (session.workingDirectories ?? []).map(short).join(', ')],
      [
        'State',
        session.status & RUNNING && (session.status & NEEDS_INPUT) !== NEEDS_INPUT
          ? 'running'
          : status(session.status)[0],
      ],
      ['Address', uri],
    ]),
    table(
      'Chats',
      [
        ['Chat', (one) => one.title || 'Chat'],
        ['State', (one) => status(one.status)[0]],
        ['Changed', (one) => since(one.modifiedAt)],
      ],
      session.chats,
    ),
    h('div', {}, dispose),
  ];
}
