// Elements, and lists of them that change.

import { ago, at, duration } from './format.js';

/** Makes an element. Properties that begin with `on` are listeners; `class`, `hidden` and the like are attributes. */
export function h(tag, properties, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat(3).filter((child) => child != null && child !== false));
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';

/** Makes an element of a drawing. */
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes ?? {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** A time as long ago, which `keepTime` keeps true. */
export function since(iso) {
  return h('time', { datetime: iso, title: at(iso), 'data-since': true }, ago(iso));
}

/** How long something runs that began at a time, which `keepTime` keeps true. */
export function running(iso) {
  return h('time', { datetime: iso, 'data-running': true }, duration(Date.now() - Date.parse(iso)));
}

/** Keeps the times of the page true: durations each second, others each ten. */
export function keepTime() {
  let seconds = 0;
  setInterval(() => {
    if (document.hidden) return;
    for (const element of document.querySelectorAll('time[data-running]'))
      write(element, duration(Date.now() - Date.parse(element.dateTime)));
    if (seconds++ % 10) return;
    for (const element of document.querySelectorAll('time[data-since]'))
      write(element, ago(element.dateTime));
  }, 1000);
}

/** Writes a text where it differs, so that nothing is laid out or announced again. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Makes the children of `parent` those of `items`, in their order, and leaves elements that stay in place. */
export function keyed(parent, items, key, make, update) {
  const old = parent.keyed ?? new Map();
  const now = new Map();
  let at = parent.firstChild;
  for (const item of items) {
    const id = key(item);
    let element = old.get(id);
    if (!element) element = make(item);
    now.set(id, element);
    update?.(element, item);
    if (element === at) at = at.nextSibling;
    else parent.insertBefore(element, at);
  }
  for (const [id, element] of old) if (now.get(id) !== element) element.remove();
  parent.keyed = now;
}

/** Runs `work` once in the next frame, however often it is asked for. */
export function frame(work) {
  let asked = false;
  let stopped = false;
  const ask = () => {
    if (asked || stopped) return;
    asked = true;
    const run = () => {
      if (!asked) return;
      asked = false;
      if (!stopped) work();
    };
    // A page in the background has no frames.
    if (document.hidden) setTimeout(run, 100);
    else requestAnimationFrame(run);
  };
  ask.stop = () => {
    stopped = true;
  };
  return ask;
}

/** A heading with what belongs beside it. */
export function head(title, ...beside) {
  return h('div', { class: 'bar' }, h('h1', { class: 'grow' }, title), ...beside);
}

/** A table; a column is `[title, cell, isNumber]`. */
export function table(caption, columns, rows) {
  const kind = (number) => (number ? { class: 'number' } : {});
  return h(
    'div',
    { class: 'table', tabindex: '0', role: 'region', 'aria-label': caption },
    h(
      'table',
      {},
      h('caption', { class: 'hidden' }, caption),
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          columns.map(([title, , number]) => h('th', { scope: 'col', ...kind(number) }, title)),
        ),
      ),
      h(
        'tbody',
        {},
        rows.map((row) =>
          h(
            'tr',
            {},
            columns.map(([, cell, number]) => h('td', kind(number), cell(row) ?? '')),
          ),
        ),
      ),
    ),
  );
}

/** A word with a color. */
export function tag(text, kind) {
  return h('span', { class: `tag ${kind ?? ''}` }, text);
}

/** Terms and what they are. */
export function facts(rows) {
  return h(
    'dl',
    {},
    rows
      .filter(([, value]) => value != null && value !== '')
      .map(([term, value]) => [h('dt', {}, term), h('dd', {}, value)]),
  );
}

let closing;

/** Shows why something failed. */
export function notify(text) {
  const notice = document.getElementById('notice');
  const close = () => notice.replaceChildren();
  notice.replaceChildren(
    h(
      'div',
      {},
      h('span', { class: 'grow text' }, text),
      h('button', { type: 'button', onclick: close }, 'Close'),
    ),
  );
  clearTimeout(closing);
  closing = setTimeout(close, 12000);
}

/** Has a screen reader say something. */
export function announce(text) {
  const announcer = document.getElementById('announcer');
  announcer.append(h('p', {}, text));
  while (announcer.childElementCount > 5) announcer.firstChild.remove();
}

/** A button that is disabled while its work runs, and shows why that failed. */
export function action(label, work, kind) {
  const button = h('button', { type: 'button', class: kind ?? '' }, label);
  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      await work(button);
    } catch (error) {
      notify(error.message);
    } finally {
      button.disabled = false;
    }
  });
  return button;
}
