// A list of which only the rows in view are elements, so that its length costs nothing.

import { frame, h, keyed } from './dom.js';

const HEIGHT = 64;
const BEYOND = 8;

/**
 * A list with rows of one height. `make(item)` makes a row's link, `update(link, item)` writes it.
 * @returns {{ element: HTMLElement, show: (items: object[]) => void }}
 */
export function windowed(label, key, make, update) {
  const inner = h('div', { role: 'list', 'aria-label': label });
  const element = h('div', { class: 'list' }, inner);
  let items = [];
  let height = 800;

  const row = (item) => h('div', { class: 'item', role: 'listitem' }, make(item));
  const draw = frame(() => {
    const first = Math.max(0, Math.floor(element.scrollTop / HEIGHT) - BEYOND);
    const last = Math.min(items.length, Math.ceil((element.scrollTop + height) / HEIGHT) + BEYOND);
    const shown = [];
    for (let at = first; at < last; at++) shown.push({ at, item: items[at] });
    // A row with the focus stays, wherever it is scrolled to.
    const focused = document.activeElement?.closest?.('.item');
    if (focused?.parentNode === inner) {
      const at = items.findIndex((item) => key(item) === focused.id);
      if (at >= 0 && (at < first || at >= last)) shown.push({ at, item: items[at] });
    }
    inner.style.height = `${Math.max(items.length * HEIGHT, 1)}px`;
    keyed(
      inner,
      shown,
      ({ item }) => key(item),
      ({ item }) => {
        const made = row(item);
        made.id = key(item);
        return made;
      },
      (place, { at, item }) => {
        place.style.top = `${at * HEIGHT}px`;
        place.setAttribute('aria-setsize', items.length);
        place.setAttribute('aria-posinset', at + 1);
        update(place.firstChild, item);
      },
    );
  });

  new ResizeObserver(([entry]) => {
    height = entry.contentRect.height;
    draw();
  }).observe(element);
  element.addEventListener('scroll', draw, { passive: true });
  element.addEventListener('keydown', (event) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const from = items.findIndex((item) => key(item) === document.activeElement?.closest?.('.item')?.id);
    const to = Math.min(items.length - 1, Math.max(0, from + step));
    if (!items[to]) return;
    event.preventDefault();
    const top = to * HEIGHT;
    if (top < element.scrollTop) element.scrollTop = top;
    if (top + HEIGHT > element.scrollTop + height) element.scrollTop = top + HEIGHT - height;
    draw();
    requestAnimationFrame(() => document.getElementById(key(items[to]))?.firstChild.focus());
  });

  return {
    element,
    show(next) {
      items = next;
      draw();
    },
  };
}
