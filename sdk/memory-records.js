// A record store that keeps everything in memory, for tests.

// As the daemon checks it.
const SLUG = /^[a-z][a-z0-9-]{0,39}$/;
const RULE = 'a slug: lowercase letters, digits and dashes, 1 to 40 characters, starting with a letter';
const isSlug = (name) => typeof name === 'string' && SLUG.test(name);

// Loaded by the first comparison.
const equal = (a, b) => process.getBuiltinModule('node:util').isDeepStrictEqual(a, b);

class Collection {
  #name;
  #body;
  #records = new Map();
  #watchers = new Set();

  constructor(name, body) {
    this.#name = name;
    this.#body = body;
    for (const member of ['get', 'ids', 'list', 'find', 'put', 'remove', 'watch'])
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

  async ids() {
    return [...this.#records.keys()];
  }

  async list() {
    return structuredClone([...this.#records.values()]);
  }

  async find(match) {
    const wanted = Object.entries(match);
    const fits = (record) =>
      wanted.every(([key, value]) => Object.hasOwn(record, key) && equal(record[key], value));
    return structuredClone([...this.#records.values()].filter(fits));
  }

  async put(record) {
    const refuse = (why) => new Error(`records ${this.#name} cannot store this record: ${why}`);
    const id = record?.id;
    if (!isSlug(id)) throw refuse(`id must be ${RULE}`);
    const kept = structuredClone(record);
    if (this.#body !== undefined) {
      const text = kept[this.#body] ?? '';
      if (typeof text !== 'string') throw refuse(`${this.#body} of ${id} must be text`);
      kept[this.#body] = text;
    }
    const before = this.#records.get(id);
    if (before && equal(before, kept)) return;
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
      if (!isSlug(name)) throw new Error(`records ${name} cannot be opened: the name must be ${RULE}`);
      if (options.body === 'id')
        throw new Error(`records ${name} cannot be opened: a record's body cannot be its id`);
      if (!open.has(name)) open.set(name, new Collection(name, options.body));
      return open.get(name);
    },
  };
}
