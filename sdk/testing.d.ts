// `@ostler/sdk/testing`: a host in memory with a client, for the tests of a plugin.

import type {
  Agent,
  AgentSession,
  Awaitable,
  Collection,
  CollectionOptions,
  Emit,
  Event,
  JsonObject,
  PluginHost,
  Reader,
  Start,
  StateAction,
  Tool,
  ToolContext,
  UsageEntry,
} from '@ostler/sdk';

/** A plugin module, as `import * as plugin from './index.ts'` returns it. */
export interface TestedPlugin {
  name?: string;
  defaults?: object;
  apply(host: PluginHost, options: any): Awaitable<void>;
}

export interface TestHostOptions {
  /** The plugin's id. Default: its `name`. */
  id?: string;
  /** Option values over the plugin's `defaults`. They are not validated; `ostler plugin check` does. */
  options?: object;
  /** The values that `host.secret` returns, by vault name. */
  secrets?: Record<string, string>;
  /** The directories of the host. Default: `/`. */
  paths?: string[];
  hostName?: string;
  version?: string;
  configDir?: string;
  /** What `host.parseYaml` and `host.stringifyYaml` use. Default: JSON, which is YAML. */
  yaml?: { parse(text: string): unknown; stringify(value: unknown): string };
  /** Answers the requests of `host.connect()`. */
  request?(method: string, params?: JsonObject): Awaitable<unknown>;
  /** `false` does not raise `listening`; `listen()` does it later. */
  listen?: boolean;
}

/** A host in memory, to which one plugin was applied. */
export interface TestHost {
  readonly id: string;
  /** What `apply` received. */
  readonly host: PluginHost;
  /** The calls of `register…` and `on`, in order; `published` has what a channel published. */
  readonly registered: {
    method: string;
    name?: string;
    given: any[];
    published?: { uri: string; action: JsonObject }[];
  }[];
  readonly logs: string[];
  readonly said: string[];
  readonly problems: string[];
  readonly usage: UsageEntry[];
  readonly fired: { type: string; event: string; data: JsonObject }[];
  readonly sessions: TestSession[];
  /** An agent of the plugin. Default: the first. */
  agent(provider?: string): Agent;
  /** A tool of the plugin. Default: the first. */
  tool(name?: string): Tool;
  /** Creates a session with an agent of the plugin. Further members are put into `start`. */
  createSession(options?: { provider?: string } & Partial<Start>): Promise<TestSession>;
  /** Runs a tool. Members of `context` replace the test host's; what it lacks rejects. */
  runTool(name: string, input?: unknown, context?: Partial<ToolContext>): Promise<unknown>;
  /** Sends a request to the plugin's route; a path is relative to `/plugins/<id>/`. */
  request(input?: string | Request, init?: RequestInit): Promise<Response>;
  /** Sends a command of the plugin. */
  call(
    name: string,
    params?: JsonObject,
    caller?: { reader?: Reader; client?: string; owner?: string },
  ): Promise<any>;
  /** Raises an event and waits for its listeners; rejects with the first error. */
  raise(event: Event): Promise<void>;
  /** Raises `listening`, once. */
  listen(): Promise<void>;
  /** Waits until the listeners have received the events of the sessions and tools so far. */
  settled(): Promise<void>;
  /** A collection of the records that the plugin reads and writes. */
  records(name: string, options?: CollectionOptions): Collection;
  /** Raises `stopping`, closes the sessions, and calls the functions of `registerClose`. */
  close(): Promise<void>;
}

/** A session with the plugin's backend, and the client in it. */
export interface TestSession {
  readonly uri: string;
  readonly chatUri: string;
  readonly provider: string;
  /** What `create` returned. */
  readonly backend: AgentSession;
  /** The emitted actions, in order. */
  readonly actions: { channel: Emit; action: StateAction }[];
  /** Emitted actions without an effect: out of order, or of another turn. */
  readonly ignored: { channel: Emit; action: StateAction }[];
  readonly turns: TestTurn[];
  /** The running turn. */
  readonly turn: TestTurn | undefined;
  /** The open requests of `session/inputNeededSet`, by id. */
  readonly inputNeeded: Map<string, any>;
  /** Sends a message: a turn begins. */
  send(text: string, options?: { model?: any; from?: any; attachments?: any[] }): TestTurn;
  /** Sends a message and waits for the end of its turn. */
  ask(text: string, options?: { model?: any; from?: any; attachments?: any[] }): Promise<TestTurn>;
  /** Approves or denies a tool call that waits for it. */
  confirm(toolCallId: string, approved: boolean, optionId?: string): Promise<void>;
  /** Answers a question. */
  answer(
    requestId: string,
    accepted: boolean,
    answers?: Record<string, any>,
    response?: string,
  ): Promise<boolean>;
  /** Cancels the running turn. */
  cancel(): Promise<void>;
  /** Ends the session. A running turn is cancelled first, and ends in any case. */
  close(removing?: boolean): Promise<void>;
}

/** One turn, as a client sees it. */
export interface TestTurn {
  readonly id: string;
  readonly session: TestSession;
  readonly status: 'running' | 'complete' | 'cancelled' | 'error';
  /** The text of its markdown parts. */
  readonly text: string;
  readonly actions: StateAction[];
  /** The error of a turn that ended with `chat/error`. */
  readonly error: any;
  readonly ended: Promise<TestTurn>;
  /** Returns the next action of a type, or waits for it; rejects if the turn ends without one. */
  next<Type extends StateAction['type']>(type: Type): Promise<Extract<StateAction, { type: Type }>>;
}

/** Applies a plugin to a host in memory. Rejects if `apply` does. */
export function createTestHost(plugin: TestedPlugin, options?: TestHostOptions): Promise<TestHost>;
