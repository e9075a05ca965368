// A record store that keeps everything in memory, for tests.

import native from 'native/globals';
import { deepEqual } from 'internal/deep-equal';

// Loaded by the first store.
const sdk = () => native.load('native/sdk').default;
const aSlug = () => `a slug: ${sdk().slugRule}`;

class Collection {
  #name;
  #body;
  #records = new Map();
  #watchers = new Set();

  constructor(name, body) {
    this.#name = name;
    this.#body = body;
    for (const member of ['get', 'list', 'find', 'put', 'remove', 'watch'])
      this[member] = this[member].bind(this);
  }

  #tell(id, type) {
    // Each hears in order and on its own: one that throws costs nobody else.
    for (const watcher of this.#watchers)
      watcher.last = watcher.last.then(() => watcher.hear({ id, type })).catch(() => {});
  }

  async get(id) {
    return structuredClone(this.#records.get(id));
  }

  async list() {
    return structuredClone([...this.#records.values()]);
  }

  async find(match) {
    const wanted = Object.entries(match);
    const fits = (record) =>
      wanted.every(([key, value]) => Object.hasOwn(record, key) && deepEqual(record[key], value, true));
    return structuredClone([...this.#records.values()].filter(fits));
  }

  async put(record) {
    const refuse = (why) => new Error(`records ${this.#name} cannot keep this record: ${why}`);
    const id = record?.id;
    if (!sdk().isSlug(id)) throw refuse(`its id has to be ${aSlug()}`);
    const kept = structuredClone(record);
    if (this.#body !== undefined) {
      const text = kept[this.#body] ?? '';
      if (typeof text !== 'string') throw refuse(`${this.#body} of ${id} has to be text`);
      kept[this.#body] = text;
    }
    const before = this.#records.get(id);
    if (before && deepEqual(before, kept, true)) return;
    this.#records.set(id, kept);
    this.#tell(id, before ? 'updated' : 'added');
  }

  async remove(id) {
    const there = this.#records.delete(id);
    if (there) this.#tell(id, 'deleted');
    return there;
  }

  watch(onChange) {
    const watcher = {
      hear: (change) => this.#watchers.has(watcher) && onChange(change),
      last: Promise.resolve(),
    };
    this.#watchers.add(watcher);
    return () => {
      this.#watchers.delete(watcher);
    };
  }
}

/** A record store that keeps everything in memory, for tests. */
export function memoryRecords() {
  const open = new Map();
  return {
    async collection(name, options = {}) {
      if (!sdk().isSlug(name))
        throw new Error(`records ${name} cannot be opened: a collection's name has to be ${aSlug()}`);
      if (options.body === 'id')
        throw new Error(`records ${name} cannot be opened: a record's body cannot be its id`);
      if (!open.has(name)) open.set(name, new Collection(name, options.body));
      return open.get(name);
    },
  };
}
