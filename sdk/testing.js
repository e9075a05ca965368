// `@ostler/sdk/testing`: a host in memory with a client, for the tests of a plugin. It runs under `ostler plugin check`,
// `node --test` and vitest.

import { memoryRecords } from './memory-records.js';
import { RpcError } from './rpc-error.js';

const ENDS = { 'chat/turnComplete': 'complete', 'chat/turnCancelled': 'cancelled', 'chat/error': 'error' };
const CHANNELS = ['session', 'chat', 'terminal'];

function frozen(value) {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  const proto = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && proto !== Object.prototype && proto !== null) return value;
  for (const inner of Object.values(value)) frozen(inner);
  return Object.freeze(value);
}

/** A promise that others settle. */
function deferred() {
  let resolve;
  let reject;
  const promise = new Promise((settled, failed) => {
    resolve = settled;
    reject = failed;
  });
  // A test may look at the outcome later, or not at all.
  promise.catch(() => {});
  return { promise, resolve, reject };
}

/** One turn, as a client sees it. */
class Turn {
  status = 'running';
  text = '';
  actions = [];
  error = undefined;
  ended;
  #end = deferred();
  #parts = new Map();
  #waiting = [];

  constructor(id, session) {
    this.id = id;
    this.session = session;
    this.ended = this.#end.promise;
  }

  /** The next action of a type, beginning with those that `next` has not returned. */
  next(type) {
    const from = this.#read.get(type) ?? 0;
    const at = this.actions.findIndex((action, index) => index >= from && action.type === type);
    if (at >= 0) {
      this.#read.set(type, at + 1);
      return Promise.resolve(this.actions[at]);
    }
    if (this.status !== 'running')
      return Promise.reject(new Error(`turn ${this.id} ended (${this.status}) without ${type}`));
    const wait = { type, ...deferred() };
    this.#waiting.push(wait);
    return wait.promise;
  }
  #read = new Map();

  /** Takes an action in. Returns whether it belongs where it came. */
  take(action) {
    const { type } = action;
    if (type === 'chat/responsePart') {
      if (this.#parts.has(action.part?.id)) return false;
      if (action.part?.id !== undefined) this.#parts.set(action.part.id, action.part.kind);
      if (action.part?.kind === 'markdown') this.text += action.part.content ?? '';
    } else if (type === 'chat/delta' || type === 'chat/reasoning') {
      const kind = this.#parts.get(action.partId);
      if (kind !== (type === 'chat/delta' ? 'markdown' : 'reasoning')) return false;
      if (kind === 'markdown') this.text += action.content;
    }
    this.actions.push(action);
    const at = this.#waiting.findIndex((wait) => wait.type === type);
    if (at >= 0) {
      this.#read.set(type, this.actions.length);
      this.#waiting.splice(at, 1)[0].resolve(action);
    }
    if (ENDS[type]) this.#finish(ENDS[type], action);
    return true;
  }

  #finish(status, action) {
    this.status = status;
    if (status === 'error') this.error = action.part?.error ?? action.error;
    for (const { type, reject } of this.#waiting.splice(0))
      reject(new Error(`turn ${this.id} ended (${status}) without ${type}`));
    this.#end.resolve(this);
  }
}

/** A session with the plugin's backend, and the client in it. */
class Session {
  actions = [];
  ignored = [];
  turns = [];
  inputNeeded = new Map();
  #host;
  #backend;
  #calls = new Map();
  #announced = false;
  #closed = false;

  constructor(host, uri, chatUri, provider) {
    this.#host = host;
    this.uri = uri;
    this.chatUri = chatUri;
    this.provider = provider;
  }

  async start(agent, start) {
    this.#backend = await agent.create(start);
    if (typeof this.#backend?.begin !== 'function')
      throw new TypeError(`create of ${agent.provider} needs to return a session with begin`);
    return this;
  }

  get backend() {
    return this.#backend;
  }

  get turn() {
    const last = this.turns.at(-1);
    return last?.status === 'running' ? last : undefined;
  }

  emit(channel, given) {
    if (!CHANNELS.includes(channel))
      throw new TypeError(`emit needs channel to be one of ${CHANNELS.join(', ')}`);
    if (typeof given?.type !== 'string') throw new TypeError('an action needs a type');
    const action = frozen(structuredClone(given));
    if (this.#closed) throw new Error('the session has ended');
    if (!this.#fits(channel, action)) {
      this.ignored.push({ channel, action });
      return;
    }
    this.actions.push({ channel, action });
  }

  #fits(channel, action) {
    const { type, toolCallId } = action;
    if (type === 'session/inputNeededSet') {
      this.inputNeeded.set(action.request?.id, action.request);
      this.#host.tell({
        type: 'input_needed_set',
        session: this.uri,
        chat: this.chatUri,
        id: action.request?.id,
        kind: action.request?.kind,
      });
    } else if (type === 'session/inputNeededRemoved') this.inputNeeded.delete(action.id);
    if (channel !== 'chat' || action.turnId === undefined) return true;
    const { turn } = this;
    if (action.turnId !== turn?.id) return false;
    const state = this.#calls.get(toolCallId);
    if (type === 'chat/toolCallStart') {
      if (state) return false;
      this.#calls.set(toolCallId, 'started');
    } else if (type === 'chat/toolCallReady') {
      if (state !== 'started') return false;
      this.#calls.set(toolCallId, action.confirmed ? 'running' : 'waiting');
    } else if (type === 'chat/toolCallComplete') {
      if (state !== 'running') return false;
      this.#calls.set(toolCallId, 'complete');
    }
    if (!turn.take(action)) return false;
    if (ENDS[type]) {
      this.#calls.clear();
      this.#host.tell({
        type: 'turn_end',
        session: this.uri,
        chat: this.chatUri,
        turn: turn.id,
        status: turn.status,
      });
    }
    return true;
  }

  send(text, { model, from, attachments } = {}) {
    if (this.#closing) throw new Error('the session has ended');
    if (this.turn) throw new Error(`turn ${this.turn.id} is running; wait for its end, or steer it`);
    const turn = new Turn(`turn-${this.turns.length + 1}`, this);
    this.turns.push(turn);
    const at = { session: this.uri, chat: this.chatUri, turn: turn.id };
    if (!this.#announced)
      this.#host.tell({ type: 'session_start', session: this.uri, provider: this.provider });
    this.#announced = true;
    this.#host.tell({ type: 'turn_start', ...at });
    this.#host.tell({ type: 'message', ...at, text });
    const failed = (error) => {
      const message = error instanceof Error ? error.message : String(error);
      if (turn.status !== 'running' || this.#closed)
        this.#host.logs.push(`begin failed after its turn: ${message}`);
      else {
        const part = { kind: 'error', error: { errorType: 'backend', message } };
        this.emit('chat', { type: 'chat/error', turnId: turn.id, duration: 0, part });
      }
    };
    void (async () => this.#backend.begin(turn.id, text, model, from, attachments))().catch(failed);
    return turn;
  }

  ask(text, options) {
    return this.send(text, options).ended;
  }

  #member(name) {
    if (typeof this.#backend[name] !== 'function')
      throw new Error(`the session of ${this.provider} has no ${name}`);
    return this.#backend[name].bind(this.#backend);
  }

  async confirm(toolCallId, approved, optionId) {
    const { turn } = this;
    if (this.#calls.get(toolCallId) !== 'waiting')
      throw new Error(`tool call ${toolCallId} does not wait for approval`);
    const confirm = this.#member('confirm');
    this.#calls.set(toolCallId, approved ? 'running' : 'complete');
    const selected = optionId === undefined ? {} : { selectedOptionId: optionId };
    const action = frozen({
      type: 'chat/toolCallConfirmed',
      turnId: turn.id,
      toolCallId,
      approved,
      ...selected,
    });
    turn.take(action);
    this.actions.push({ channel: 'chat', action });
    for (const [id, request] of this.inputNeeded)
      if (request?.toolCall?.toolCallId === toolCallId) this.#remove(id);
    await confirm(toolCallId, approved, optionId);
  }

  async answer(requestId, accepted, answers = {}, response = accepted ? 'accept' : 'decline') {
    const taken = await this.#member('answer')(requestId, accepted, answers, response);
    if (taken !== false) this.#remove(requestId);
    return taken !== false;
  }

  #remove(id) {
    if (this.inputNeeded.delete(id)) this.#host.tell({ type: 'input_needed_removed', session: this.uri, id });
  }

  async cancel() {
    if (this.turn) await this.#backend.cancel(this.turn.id);
  }

  close(removing = false) {
    this.#closing ??= this.#close(removing);
    return this.#closing;
  }
  #closing;

  /** As the daemon: a running turn is cancelled first, and ends in any case. */
  async #close(removing) {
    const { turn } = this;
    try {
      await this.cancel();
    } catch (error) {
      this.#host.logs.push(`cancel failed: ${error?.message ?? error}`);
    }
    try {
      await this.#backend.close(removing);
    } finally {
      if (turn?.status === 'running')
        this.emit('chat', { type: 'chat/turnCancelled', turnId: turn.id, duration: 0 });
      this.#closed = true;
      if (this.#announced) this.#host.tell({ type: 'session_end', session: this.uri, reason: 'disposed' });
    }
  }
}

/** What the methods of the host need to be given. */
const NEEDS = {
  registerAgent: {
    name: (agent) => agent?.provider,
    needs: ['schema', 'defaults', 'create'],
    text: ['provider', 'displayName'],
  },
  registerTool: { name: (tool) => tool?.definition?.name, needs: ['run'], text: [] },
  registerMethod: { name: (name) => name, needs: [], text: [] },
  registerTriggerType: { name: (type) => type?.type, needs: [], text: [] },
};

// The methods are generated from the contract by cargo xtask generate.
const METHODS = [
  'registerAgent',
  'registerTool',
  'registerSessionConfig',
  'registerResources',
  'registerResourceProvider',
  'registerChannel',
  'registerMethod',
  'registerTerminals',
  'registerComputers',
  'registerContainers',
  'registerChanges',
  'registerDirectories',
  'registerWorktrees',
  'registerGithub',
  'registerAutomations',
  'registerSessions',
  'registerVault',
  'registerPolicies',
  'registerDiagnostics',
  'registerUsage',
  'registerRecords',
  'registerRoute',
  'registerTriggerType',
  'registerChatPreamble',
  'registerClose',
];
// End of the methods.

class Host {
  logs = [];
  said = [];
  problems = [];
  usage = [];
  fired = [];
  registered = [];
  sessions = [];
  #listeners = new Map();
  #state = 'applying';
  #about;
  #store;
  #numbers = 0;
  #context;

  constructor(plugin, about) {
    this.id = about.id ?? plugin.name ?? 'plugin';
    this.#about = about;
    this.#store = memoryRecords();
    const paths = Object.freeze([...(about.paths ?? ['/'])]);
    this.#context = {
      path: paths[0] ?? '/',
      paths,
      version: about.version ?? '0.0.0',
      hostName: about.hostName ?? 'test',
      configDir: about.configDir ?? '/',
      log: (line) => void this.logs.push(String(line)),
      say: (line) => void this.said.push(String(line)),
      parseYaml: (text) => (about.yaml?.parse ?? JSON.parse)(text),
      stringifyYaml: (value) => (about.yaml?.stringify ?? JSON.stringify)(value),
    };
    const registers = METHODS.map((method) => [method, (...given) => this.#register(method, given)]);
    this.host = Object.freeze({ ...this.#context, ...this.#calls(), ...Object.fromEntries(registers) });
  }

  #calls() {
    return {
      records: (name, options) => this.records(name, options),
      secret: async (name) => {
        const value = this.#about.secrets?.[name];
        if (value === undefined) throw new Error(`the vault holds no ${name}`);
        return value;
      },
      connect: () => this.#peer(),
      startSession: async (request) => {
        this.#needs('listening', 'startSession');
        const { provider, prompt, workingDirectory, config: settings } = request;
        const session = await this.createSession({ provider, workingDirectory, settings });
        if (prompt !== undefined) session.send(prompt);
        return session.uri;
      },
      sessionKept: async (uri) => this.sessions.some((session) => session.uri === uri),
      sessionOwner: async () => undefined,
      recordUsage: async (entry) => void this.usage.push(structuredClone(entry)),
      fireTrigger: (type, event, data) => {
        const needs = (what) => new Error(`plugin ${this.id}: fireTrigger needs ${what}`);
        const [own] = this.#all('registerTriggerType').find(({ name }) => name === type)?.given ?? [];
        if (!own) throw needs(`type to be a type this plugin registered, not ${type}`);
        if (!own.events?.some(({ id }) => id === event))
          throw needs(`event to be an event ${type} offers, not ${event}`);
        if (typeof data !== 'object' || data === null || Array.isArray(data))
          throw needs('data to be an object');
        this.fired.push(structuredClone({ type, event, data }));
        return { kept: async () => [] };
      },
      on: (event, handler) => {
        this.#register('on', [event, handler]);
        this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), handler]);
      },
      problem: (line) => void this.problems.push(String(line)),
    };
  }

  #needs(state, call) {
    const order = ['applying', 'applied', 'listening', 'closed'];
    if (this.#state === 'closed') throw new Error(`plugin ${this.id}: ${call} after the host has closed`);
    if (order.indexOf(this.#state) < order.indexOf(state))
      throw new Error(`plugin ${this.id}: ${call} is not available before the host listens`);
  }

  #peer() {
    this.#needs('listening', 'connect');
    const answer = this.#about.request;
    return {
      request: async (method, params) => {
        if (!answer)
          throw new RpcError(-32601, `the test host has no ${method}; pass request to createTestHost`);
        return answer(method, params);
      },
      notify() {},
      onMessage() {},
      close() {},
    };
  }

  #register(method, given) {
    if (this.#state !== 'applying')
      throw new Error(`plugin ${this.id}: ${method} was called after apply returned`);
    const refuse = (member, what) => {
      throw new TypeError(`plugin ${this.id}: ${method} needs ${member} to be ${what}`);
    };
    const rule = NEEDS[method];
    const name = rule?.name(given[0]);
    if (rule && (typeof name !== 'string' || name.trim() === '')) refuse('its name', 'a non-empty string');
    for (const member of rule?.text ?? [])
      if (typeof given[0][member] !== 'string' || given[0][member].trim() === '')
        refuse(member, 'a non-empty string');
    for (const member of rule?.needs ?? [])
      if (typeof given[0][member] !== 'function') refuse(member, 'a function');
    if (
      ['registerRoute', 'registerClose', 'registerChatPreamble'].includes(method) &&
      typeof given[0] !== 'function'
    )
      refuse('its argument', 'a function');
    if (name !== undefined && this.registered.some((other) => other.method === method && other.name === name))
      throw new Error(`plugin ${this.id}: ${name} is registered twice`);
    this.registered.push({ method, name, given });
    if (method !== 'registerChannel') return undefined;
    const published = [];
    this.registered.at(-1).published = published;
    return {
      publish: (uri, action) => void published.push(structuredClone({ uri, action })),
      subscribers: () => [],
    };
  }

  async apply(plugin) {
    if (typeof plugin?.apply !== 'function')
      throw new TypeError('the plugin does not export an apply function');
    const options = structuredClone({ ...plugin.defaults, ...this.#about.options });
    await plugin.apply(this.host, options);
    this.#state = 'applied';
    const store = this.#all('registerRecords')[0];
    if (store) this.#store = store.given[0];
    this.#applied.resolve();
    if (this.#about.listen !== false) await this.listen();
    return this;
  }
  #applied = deferred();

  #all(method) {
    return this.registered.filter((one) => one.method === method);
  }

  #one(method, name, what) {
    const all = this.#all(method);
    const found = name === undefined ? all[0] : all.find((one) => one.name === name);
    if (found) return found.given;
    const known = all.map((one) => one.name).join(', ') || 'none';
    throw new Error(
      `plugin ${this.id} has no ${what}${name === undefined ? '' : ` ${name}`}; it has ${known}`,
    );
  }

  async listen() {
    if (this.#state !== 'applied') return;
    this.#state = 'listening';
    await this.raise({ type: 'listening', runtime: 'test', host: '127.0.0.1', port: 0, guarded: false });
  }

  async raise(event) {
    const context = Object.freeze({ ...this.#context });
    const told = frozen(structuredClone(event));
    for (const handler of this.#listeners.get(event.type) ?? []) await handler(told, context);
  }

  /** Raises an event of the host itself: as in the daemon, a listener that fails fails nothing else. */
  tell(event) {
    const failed = (error) => this.logs.push(`its ${event.type} listener failed: ${error?.message ?? error}`);
    this.#told = this.#told.then(() => this.raise(event)).catch(failed);
  }
  #told = Promise.resolve();

  /** Waits until the listeners have had all events so far. */
  async settled() {
    await this.#told;
  }

  agent(provider) {
    return this.#one('registerAgent', provider, 'agent')[0];
  }

  tool(name) {
    return this.#one('registerTool', name, 'tool')[0];
  }

  async createSession({ provider, settings = {}, workingDirectory, ...others } = {}) {
    const agent = this.agent(provider);
    const number = (this.#numbers += 1);
    const session = new Session(this, `${agent.provider}:/${number}`, `ahp-chat:/${number}`, agent.provider);
    const tools = this.#all('registerTool').map(({ given: [tool] }) => ({
      definition: tool.definition,
      effects: tool.effects,
      run: (input) =>
        this.#run(tool, input, { session: session.uri, chat: session.chatUri, provider: agent.provider }),
    }));
    const start = {
      uri: session.uri,
      chatUri: session.chatUri,
      settings: { ...(await agent.defaults()), ...settings },
      chosenSettings: settings,
      ...(workingDirectory === undefined ? {} : { workingDirectory }),
      ...(tools.length > 0 ? { tools } : {}),
      clientToolTimeoutMs: 60_000,
      env: { OSTLER_SESSION: session.uri },
      emit: (channel, action) => session.emit(channel, action),
      onTurnRecorded: () => {},
      ...others,
    };
    await session.start(agent, frozen(start));
    this.sessions.push(session);
    return session;
  }

  async #run(tool, input, at) {
    const absent = (name) => async () => {
      throw new Error(`the test host has no ${name}; pass it to runTool`);
    };
    const calls = [
      'sessions',
      'chats',
      'context',
      'send',
      'create',
      'createChat',
      'rename',
      'remove',
      'read',
    ];
    const context = {
      session: 'test:/1',
      chat: 'ahp-chat:/1',
      turn: async () => undefined,
      ...Object.fromEntries(calls.map((name) => [name, absent(name)])),
      ...at,
    };
    const event = {
      type: 'tool_call',
      session: context.session,
      chat: context.chat,
      tool: tool.definition.name,
    };
    try {
      const result = await tool.run(structuredClone(input), context);
      this.tell({ ...event, ok: true });
      return result === undefined ? null : structuredClone(result);
    } catch (error) {
      this.tell({ ...event, ok: false, error: error?.message ?? String(error) });
      throw error;
    }
  }

  runTool(name, input = {}, context = {}) {
    return this.#run(this.tool(name), input, context);
  }

  async request(input = '', init = undefined) {
    const request =
      input instanceof Request
        ? input
        : new Request(new URL(input, `http://127.0.0.1/plugins/${this.id}/`), init);
    const [route] = this.#all('registerRoute');
    if (!route) return new Response('Not found', { status: 404 });
    return route.given[0](request);
  }

  async call(name, params = {}, { reader, client = 'test', owner } = {}) {
    const [, method] = this.#one('registerMethod', name, 'command');
    return structuredClone(await method.handle(structuredClone(params), reader, client, owner));
  }

  records(name, options) {
    const open = this.#applied.promise.then(() => this.#store.collection(name, options));
    open.catch(() => {});
    const later =
      (member) =>
      async (...given) => {
        const collection = await open;
        if (member === 'ids' && !collection.ids) return (await collection.list()).map((record) => record.id);
        return collection[member](...given);
      };
    const collection = Object.fromEntries(
      ['get', 'ids', 'list', 'find', 'put', 'remove'].map((name) => [name, later(name)]),
    );
    collection.watch = (onChange) => {
      let stop;
      let stopped = false;
      open.then(
        (collection) => {
          if (!stopped) stop = collection.watch(onChange);
        },
        () => {},
      );
      return () => {
        stopped = true;
        stop?.();
      };
    };
    return collection;
  }

  async close() {
    if (this.#state === 'closed') return;
    await this.raise({ type: 'stopping' });
    for (const session of this.sessions) await session.close();
    for (const { given } of this.#all('registerClose')) await given[0]();
    await this.settled();
    this.#state = 'closed';
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.close();
  }
}

/** Applies a plugin to a host in memory. */
export async function createTestHost(plugin, options = {}) {
  return new Host(plugin, options).apply(plugin);
}
