// What a plugin and the host agree on. Made from the host's own declarations by `cargo xtask generate`: do not edit.

/** A JSON object. */
export type JsonObject = { [key: string]: unknown };

/** A value, or a promise of it. */
export type Awaitable<T> = T | PromiseLike<T>;

/** A value nobody may write to, at any depth: writing throws. */
export type Frozen<T> = T extends (...given: never[]) => unknown
    ? T
    : T extends object
      ? { readonly [Key in keyof T]: Frozen<T[Key]> }
      : T;

/** What a plugin's module exports. There is no default export. */
export interface PluginModule<Options = JsonObject> {
    /** The plugin's id: a slug. Without it the id is the package's or the file's name. */
    name?: string;
    /** What a listing prints. */
    title?: string;
    /** Option values merged under the configured ones. */
    defaults?: JsonObject;
    /** JSON Schema of the options, one property per option key; checked before `apply`. */
    optionsSchema?: JsonObject;
    /** Runs once, before the host exists. Nothing may be registered after it returned. */
    apply(host: PluginHost, options: Options): Awaitable<void>;
}

/** The host as one plugin sees it: facts, calls, and one method per registration point. Writing to it throws. */
export interface PluginHost extends PluginContext {
    /** Opens a connection of the plugin's own, served as `plugin:<id>`. Throws until the host listens. */
    connect(): Peer;
    /** Starts a session for somebody; answers its URI, or throws and leaves nothing behind. */
    startSession(request: SessionRequest): Promise<string>;
    /** Answers whether this host keeps the session. */
    sessionKept(uri: string): Promise<boolean>;
    /** Answers the session's owner, or nothing. */
    sessionOwner(uri: string): Promise<string | undefined>;
    /**
     * Keeps one entry of use. With no usage store nothing is kept and nothing fails; a store that refuses the entry
     * throws here.
     */
    recordUsage(entry: UsageEntry): Promise<void>;
    /** Answers the value behind a vault name: `host:<name>`, `team:<team>/<name>` or `user:<id>/<name>`. */
    secret(name: string, scope?: SecretScope): Promise<string>;
    /** Opens a collection of the record store. Its calls wait until every plugin has applied. */
    records(name: string, options?: CollectionOptions): Collection;
    /**
     * Says that an event of a trigger type this plugin registered has happened. Every enabled automation
     * whose trigger matches `data` starts a run; the call does not wait for them. `data` is stored with the
     * run and must carry nothing secret. One fired before the host is built starts its runs once it is.
     */
    fireTrigger(type: string, event: string, data: JsonObject): Fired;
    /** A backend a client names in `createSession`. */
    registerAgent(agent: Agent): void;
    /** A server tool offered to every session's model. */
    registerTool(tool: Tool): void;
    /**
     * A setting a client draws on every session, merged into the backend's own schema. With a third argument it
     * becomes a picker.
     */
    registerSessionConfig(key: string, schema: JsonObject, completions?: ((query: SettingQuery) => Awaitable<SettingChoice[]>)): void;
    /** The store behind `file:`: what clients read, list and, where it has a write half, write. */
    registerResources(store: ResourceStore, when?: When): void;
    /** One host-owned URI scheme, routed beside the `file:` store. */
    registerResourceProvider(scheme: string, provider: ResourceProvider): void;
    /** One channel a client subscribes to, under an `x-` scheme. Answers a handle to publish on. */
    registerChannel(scheme: string, channel: Channel): ChannelHandle;
    /** One command a client sends by name, under an `x-` name. */
    registerMethod(name: string, method: Method): void;
    /** What opens terminals. */
    registerTerminals(store: TerminalStore, when?: When): void;
    /** How a backend runs its process in a named machine, and what makes machines. */
    registerComputers(computers: Computers, when?: When): void;
    /** Whether a dev container can be made, made, written to, stopped and removed. */
    registerContainers(containers: Containers, when?: When): void;
    /** What sessions changed: their changesets, and what may be done with them. */
    registerChanges(source: Changes, when?: When): void;
    /** What is known of the directories sessions work in. */
    registerDirectories(facts: Directories, when?: When): void;
    /** Working trees: with them a session may be given a tree of its own. */
    registerWorktrees(worktrees: Worktrees, when?: When): void;
    /** Pull requests of a code host. */
    registerGithub(pullRequests: PullRequests, when?: When): void;
    /** The automation store. */
    registerAutomations(store: AutomationStore, when?: When): void;
    /**
     * The session store: flags, config, artifacts, pull requests, chat titles, a session's chats, the
     * sessions it holds.
     */
    registerSessions(store: SessionStore, when?: When): void;
    /** Where secrets are kept. */
    registerVault(vault: Vault, when?: When): void;
    /** Where policies are kept: which agents, models and machines may be used. */
    registerPolicies(policies: Policies, when?: When): void;
    /** What the host tells those who look after it. */
    registerDiagnostics(diagnostics: Diagnostics, when?: When): void;
    /** Where use is kept: what models and machines cost. */
    registerUsage(usage: Usage, when?: When): void;
    /** Where records are kept. */
    registerRecords(store: RecordStore, when?: When): void;
    /** One HTTP route on the host's own listener, under `/plugins/<id>/`. */
    registerRoute(handler: (request: Request) => Awaitable<Response>): void;
    /** One event trigger type an automation may be saved with. */
    registerTriggerType(definition: TriggerType): void;
    /** Text put before the first turn of each chat a person or tool opens. */
    registerChatPreamble(preamble: (frozen: Frozen<PreambleChat>) => Awaitable<string | null | undefined>): void;
    /** A function run when the host closes, after its sessions and before its stores. */
    registerClose(close: () => void): void;
    /** A listener to one kind of event. It contributes nothing to the host. */
    on<Name extends EventName>(
        event: Name,
        handler: (event: Frozen<Extract<Event, { type: Name }>>, context: Frozen<PluginContext>) => void,
    ): void;
    /** One item the plugin dropped, printed at the start as `skipped: <line>`. Costs the item, not the plugin. */
    problem(line: string): void;
}

/** What a listener is handed: the facts and calls `apply` received, to read. */
export interface PluginContext {
    /** The first directory the host serves. */
    path: string;
    /** Every directory the host serves. */
    paths: string[];
    /** The SDK version actually in use. */
    version: string;
    /** What this host is called, for work nobody started as themselves. */
    hostName: string;
    /** Folder holding the daemon's configuration; where a plugin keeps its own file. */
    configDir: string;
    /** Writes one line to the daemon's log. */
    log(line: string): void;
    /** Adds one line to what the daemon announces about itself, while `listening` is handled. */
    say(line: string): void;
    /** Reads YAML text as data. */
    parseYaml(text: string): unknown;
    /** Writes data as YAML text. */
    stringifyYaml(value: unknown): string;
}

/** A plugin's own connection: a client like any other, in memory. */
export interface Peer {
    /** Sends a request; answers its result, or throws the `RpcError`. */
    request(method: string, params?: JsonObject): Promise<unknown>;
    /** Sends a notification. */
    notify(method: string, params?: JsonObject): void;
    /** Hears every notification of the host: `{ method, params }`. One listener at a time. */
    onMessage(listener: (value: unknown) => void): void;
    /** Ends the connection. More than once does nothing more. */
    close(): void;
}

/** A session asked for with `startSession`. */
export interface SessionRequest {
    /** Whose it is: `user:<id>`, `team:<id>`, `project:<team>:<project>`, `root:<host>` or `plugin:<id>`. */
    owner: string;
    /** A backend the host has; the first one when left out. */
    provider?: string;
    /** Where the backend works; the host's first directory when left out. */
    workingDirectory?: string;
    /** The session's own settings. */
    config?: JsonObject;
    /** Rides on the first turn. */
    model?: SessionModel;
    /** Without it the session is named after its first turn. */
    title?: string;
    /** The first turn. Left out, the session opens with nobody speaking; blank, it is refused. */
    prompt?: string;
}

/** A model by its id. */
export interface SessionModel {
    /** As the backend's models are called. */
    id: string;
}

/** One entry of use. Keys beyond these are kept as they are. */
export interface UsageEntry {
    /** What was used. */
    kind: UsageKind;
    /**
     * The keys charged: the owner as written, `team:<team>`, `project:<team>:<project>`. Made of `owner`, `team` and
     * `project` where left out.
     */
    pools?: string[];
    /** When, as ISO 8601; now where left out. */
    at?: string;
    /** What told of it. */
    source?: UsageSource;
    /** Whose work it was: `user:<id>`, `root:<host>`, … */
    owner?: string;
    /** The team it was for. */
    team?: string;
    /** The team's project it was for. */
    project?: string;
    /** The session's URI. */
    session?: string;
    /** The chat's URI. */
    chat?: string;
    /** The turn's id. */
    turn?: string;
    /** The backend. */
    agent?: string;
    /** The machine. */
    computer?: string;
    /** For how long the machine was used. */
    seconds?: number;
    /** The model and its tokens. */
    model?: UsageModel;
    /** What is charged. */
    cost?: UsageCost;
    /** What the provider said it costs. */
    providerCost?: UsageCost;
    /** Everything else. */
    [key: string]: unknown;
}

/** What was used. */
export type UsageKind = 'model' | 'computer';

/** What told of the use. */
export type UsageSource = 'proxy' | 'agent' | 'computer';

/** A model and what it took. */
export interface UsageModel {
    /** `<maker>/<name>`, or as the backend calls it. */
    name: string;
    /** Who serves it. */
    provider?: string;
    /** Tokens it was given. */
    input?: number;
    /** Tokens it said. */
    output?: number;
    /** Tokens of a cache. */
    cache?: UsageCache;
}

/** Tokens of a cache. */
export interface UsageCache {
    /** Read from it. */
    read?: number;
    /** Written to it. */
    write?: number;
}

/** An amount of money. */
export interface UsageCost {
    /** How much. */
    amount: number;
    /** Of what, as `USD`. */
    currency: string;
    /** Where the amount is from. */
    from?: CostFrom;
    /** The part of it that is for what the model was given. */
    input?: number;
    /** The part of it that is for what the model said. */
    output?: number;
}

/** Where an amount is from. */
export type CostFrom = 'harness' | 'price';

/** Whose work a secret is asked for. */
export interface SecretScope {
    /** The work is this team's. */
    team?: string;
    /** The work is this person's: `user:<id>`. */
    owner?: string;
}

/** How a collection is kept. */
export interface CollectionOptions {
    /** The field that holds a record's long text. */
    body?: string;
}

/** A collection as a plugin is handed it: every call but `watch` answers a promise. */
export interface Collection {
    /** The record of an id, or nothing. */
    get(id: string): Promise<JsonObject | undefined>;
    /** Every record. */
    list(): Promise<JsonObject[]>;
    /** The records whose top-level fields equal each field of `match`. */
    find(match: JsonObject): Promise<JsonObject[]>;
    /** Keeps a record, replacing what its id held. Refuses an id that is no slug. */
    put(record: JsonObject): Promise<void>;
    /** Forgets a record; `true` when there was one. */
    remove(id: string): Promise<boolean>;
    /** Calls back after each change; answers the function that stops it. */
    watch(onChange: (change: RecordChange) => void): () => void;
}

/** One change in a collection. */
export interface RecordChange {
    /** The record. */
    id: string;
    /** How it changed. */
    type: ChangeType;
}

/** How something changed. */
export type ChangeType = 'added' | 'updated' | 'deleted';

/** What came of a fired event. */
export interface Fired {
    /**
     * Answers the URIs of the runs the event started, once each is kept so that a crash cannot lose it.
     * Throws where one could not be kept.
     */
    kept(): Promise<string[]>;
}

/**
 * A backend a client names in `createSession`.
 *
 * The host keeps the session's state: a backend says what happens with `start.emit`, in the protocol's own
 * actions, and is told what people do through the members of the session it answers.
 */
export interface Agent {
    /** The id a client names, unique on the host; the scheme of its session URIs. */
    provider: string;
    /** Shown to people. */
    displayName: string;
    /** One line. */
    description?: string;
    /** The settings of a session, `{ properties }`: used before one exists and by every session. */
    schema(): Awaitable<unknown>;
    /** The value per setting when nothing is chosen. */
    defaults(): Awaitable<JsonObject>;
    /** Starts or resumes one chat's conversation. */
    create(start: Frozen<Start>): Awaitable<AgentSession>;
    /** What a second chat may be made from; without it a session has one chat. */
    chats?: ChatAbilities;
    /** Whether it works in more than one directory. */
    multipleDirectories?: boolean;
    /** RFC 9728 records; without them no token can be given to it. */
    protectedResources?: ProtectedResourceMetadata[];
    /** What a machine needs to run it, by name. Called when a machine is made, never at load. */
    machine?(): Awaitable<Record<string, MachineNeed>>;
    /** Whether a session in a machine runs in a host started inside it. */
    runsNested?: boolean;
    /** Whether it is built from a preset: a nested host has none of these. */
    variant?: boolean;
    /**
     * Whether only its own plugin starts sessions with it: it is not listed, never the default, and no
     * client may name it.
     */
    unlisted?: boolean;
    /** Asked once at the start, before any session. */
    probe?(): Awaitable<Offered>;
    /** Directories it will work in. */
    directories?(): Awaitable<string[]>;
    /** Its own stored sessions. */
    list?(): Awaitable<Listed[]>;
    /** One of them. */
    find?(id: string): Awaitable<Listed | null | undefined>;
    /** Removes its own copy; resolves when it is already gone. */
    delete?(id: string, directory?: string): void;
    /** Past turns of one of its sessions, with nothing started. */
    transcript?(id: string): Awaitable<Turn[] | null | undefined>;
}

/** What `create` is handed: names, settings, and handles to act with. Frozen. */
export interface Start {
    /** The session's URI. */
    uri: string;
    /** The chat's URI. */
    chatUri: string;
    /** The name this chat's conversation is kept under; absent for a session's first chat. */
    chatId?: string;
    /** Defaults with the client's values on top. */
    settings: JsonObject;
    /** A path. */
    workingDirectory?: string;
    /** More paths. */
    additional?: string[];
    /** Tools bound to this session. */
    tools?: BoundTool[];
    /** The host's `mcpServers` by name; absent, not empty, when it holds none. */
    mcpServers?: JsonObject;
    /** One text per offered host tool that has one. */
    instructions?: string[];
    /** How long a client's tool may take, in milliseconds; 0 = forever. */
    clientToolTimeoutMs: number;
    /**
     * Reports what happened in the running turn, in this order: a part opens (`chat/responsePart`) before its text
     * (`chat/delta`, `chat/reasoning`); a tool call goes `chat/toolCallStart`, `chat/toolCallReady`,
     * `chat/toolCallComplete`; `chat/usage` comes before the end; and one of `chat/turnComplete`, `chat/turnCancelled`
     * and `chat/error` ends the turn. An action out of that order, or about another turn, changes nothing and is sent
     * to no client. The host itself emits `chat/turnStarted` and `chat/toolCallConfirmed`. Throws on an action the
     * protocol does not have, and a `QuotaExceededError` where 50,000 emitted ones wait already: a backend that is so
     * far ahead pauses and emits again.
     */
    emit(channel: Emit, action: StateAction): void;
    /** Opens a read-only chat for a worker, once per call id. */
    subagent?(toolCallId: string, request: WorkerRequest): Promise<Worker>;
    /**
     * Reads a resource as the session's owner: a message's attachment, what a client publishes, what a provider serves.
     * A client is asked, and has 30 seconds and 16 MiB for its answer.
     */
    read?(uri: string): Promise<ResourceContent>;
    /**
     * The settings of the editors that are active in the session, as they are now: `telemetryLevel` (`off`, `crash`,
     * `error`, `all`), `systemProxyEnabled`, `terminalAutoApproveEnabled`, `terminalAutoApproveRules` (by command:
     * `true`, `false` or `{ approve, matchCommandLine? }`), `autoReplyEnabled`. One that no editor sent is absent; where
     * editors differ the most careful value counts.
     */
    clientSettings?(): Promise<JsonObject>;
    /** Opens the session's tools endpoint, the same one for its life; absent on a host built without tool servers. */
    toolsServer?(options?: ToolsServerOptions): Promise<ToolsServer | undefined>;
    /** Opens terminals the host lists; absent on a host without a terminal store. */
    terminals?: SessionTerminals;
    /** The machine the session runs in; absent where it runs on this host. */
    computer?: SessionComputer;
    /**
     * Environment variables for the processes a backend starts: `OSTLER_SESSION`, the session's URI, and, in a
     * session that a run of an automation started, `OSTLER_RUN`, the run's URI. Terminals the host opens and
     * processes in machines have them already.
     */
    env: Record<string, string>;
    /** The backend's own id to continue. */
    resume?: string;
    /** The backend's name for the turn to fork at, under a new id. */
    forkAt?: string;
    /** The backend's name for the turn to rewind to, under the same id; ignored beside `forkAt`. */
    rewindAt?: string;
    /** Hidden context for the first turn, before its text; never on the wire. */
    context?: string;
    /** Turns already known. */
    seed?: Turn[];
    /** Keeps the backend's own name for a turn. */
    onTurnRecorded(turnId: string, transcriptId: string): void;
    /** A token per protected resource, from the asking connection only. */
    credentials?: Record<string, string>;
}

/** A tool as a backend sees it. */
export interface BoundTool {
    /** Name, description, schema. */
    definition: ToolDefinition;
    /**
     * Runs it; absent where a client runs it. Resolves to what the tool's own `run` returned, any JSON value and mostly
     * a text, not to the protocol's `ToolCallResult`: the backend makes that of it, and of the error a failed tool
     * rejects with, for `chat/toolCallComplete`.
     */
    run?(input: unknown, call?: ToolCallPlace): Promise<unknown>;
    /** The tool's own claim of what it does. */
    effects?: ToolEffects;
    /**
     * The client that runs it: the call's `contributor` is `{ kind: 'client', clientId: owner }`, and its result comes to
     * `completeToolCall`. The definition's name is then `<owner>__<name>`; the client knows the tool as `<name>`.
     */
    owner?: string;
    /** Whether the model need not be told of it at once. */
    deferLoading?: boolean;
}

/** In which turn and call a backend runs a tool. */
export interface ToolCallPlace {
    /** The turn. */
    turnId?: string;
    /** The call. */
    toolCallId?: string;
}

/** What a tool says it does; nothing is assumed of what it does not say. */
export interface ToolEffects {
    /** It reads. */
    reads?: boolean;
    /** It writes. */
    writes?: boolean;
    /** It goes out. */
    network?: boolean;
    /** It cannot be undone. */
    destructive?: boolean;
}

/** Where an emitted action goes. */
export type Emit = 'session' | 'chat' | 'terminal';

/** A worker chat asked for. */
export interface WorkerRequest {
    /** Shown to people. */
    title: string;
    /** What the worker is called. */
    agentName?: string;
    /** What it does. */
    description?: string;
    /** What it was asked; opens its turn. */
    prompt?: string;
    /** The call of the worker this one was spawned by. */
    parentToolCallId?: string;
}

/** A worker chat opened. */
export interface Worker {
    /** The chat's URI. */
    uri: string;
    /** Its one turn; every part emitted names it. */
    turnId: string;
    /** Says what happened in it. */
    emit(action: StateAction): void;
    /** Ends its turn, once. */
    end(status: TurnStatus, why?: string): void;
}

/** How a turn ended. */
export type TurnStatus = 'complete' | 'cancelled' | 'error';

/** What a URI held. */
export interface ResourceContent {
    /** The text, or base64 of the bytes. */
    data: string;
    /** `utf-8` (where left out) or `base64`. */
    encoding?: Encoding;
    /** Its media type. */
    contentType?: string;
}

/** How bytes are written in JSON. */
export type Encoding = 'utf-8' | 'base64';

/** How a backend wants its tools endpoint. */
export interface ToolsServerOptions {
    /**
     * Has a client run a tool it contributed. Where the answer is the result the client reported, that says whether
     * the call failed.
     */
    runClient?(name: string, input: unknown): Awaitable<unknown>;
    /** `notify` to hear of changes on the stream, `list` (where left out) to ask again. */
    toolsChanged?: ToolsChanged;
}

/** How a backend learns that its tools changed. */
export type ToolsChanged = 'notify' | 'list';

/** A session's tools endpoint. */
export interface ToolsServer {
    /** Where. */
    url: string;
    /** The bearer token of this path. */
    token: string;
    /** Closes it for this backend; once no other backend of the session holds it, its path is gone. */
    close(): void;
}

/** How a backend opens terminals that the host lists and people can watch. */
export interface SessionTerminals {
    /** Opens one, claimed by this chat. */
    open(request: SessionTerminalRequest): Promise<SessionTerminal>;
}

/** A terminal a backend asks for. */
export interface SessionTerminalRequest {
    /** What to run instead of a shell: with `args` a program, without them a line for the shell. */
    command?: string;
    /** The program's arguments, each of them one word. */
    args?: string[];
    /** A path; the session's first directory when left out. */
    cwd?: string;
    /** Variables beside the host's environment. */
    env?: Record<string, string>;
    /** Shown to people. */
    name?: string;
    /** The turn it is for. */
    turnId?: string;
    /** The tool call it is for. */
    toolCallId?: string;
}

/** A terminal a backend opened. */
export interface SessionTerminal {
    /** Its URI, to be linked in a tool call's content. */
    uri: string;
    /** What it has said, as far as the host keeps it. */
    output(): Promise<string>;
    /** Resolves once its process has ended: the exit code, where there was one. */
    wait(): Promise<number | undefined>;
    /** Types into it. */
    write(data: string): Promise<void>;
    /** Gives it another size. */
    resize(cols: number, rows: number): Promise<void>;
    /** Ends its process. The terminal stays listed, with what it said. */
    kill(): Promise<void>;
    /** Ends its process and takes it off the list. */
    release(): Promise<void>;
}

/** The machine a session runs in, as its backend sees it. */
export interface SessionComputer {
    /** Its address. */
    uri: string;
    /** Where a path of this host is in the machine; nothing where the machine does not see it. */
    place(path: string): Promise<string | undefined>;
    /**
     * What to start on this host so that a process runs in the machine, where the session works unless it says where. A backend that is handed this starts nothing
     * of its session outside it.
     */
    how(process: MachineProcess): Promise<MachineProcess>;
}

/** A process to run: in a machine where it is asked for, on this host where it is answered. */
export interface MachineProcess {
    /** A program's name or path. */
    program: string;
    /** Its arguments, each of them one word. */
    args?: string[];
    /** Where it works: a path. */
    cwd?: string;
    /** The variables it is given. Nothing else of the host's environment reaches a machine. */
    env?: Record<string, string>;
}

/** What `create` answers: the running half of one chat. `begin`, `cancel` and `close` are required. */
export interface AgentSession {
    /**
     * Runs a turn. It may resolve before the turn has ended: only an emitted action ends it. Where it throws or rejects
     * while the turn runs, the host ends the turn with a `chat/error` of the type `backend` and the error's message;
     * after the end it is a line in the log. The conversation goes on with the next turn either way.
     */
    begin(turnId: string, text: string, model?: ModelSelection, from?: TurnFrom, attachments?: MessageAttachment[]): void;
    /**
     * Runs a turn that is a command line, `!ls` say: it reports a tool call, has the host run the command in a
     * terminal that people can watch, and ends the turn. Without it such a turn fails.
     */
    ran?(turnId: string, command: string, run: (value?: string) => Promise<SessionTerminal>): void;
    /** Stops a running turn. Every parked question is settled. */
    cancel(turnId: string): void;
    /** Ends the conversation; `removing` when its record goes too. */
    close(removing?: boolean): void;
    /** The backend's own id; nothing until the agent named itself. */
    agentId?(): Awaitable<string | null | undefined>;
    /** Continues the latest turn, which failed; `false` refuses. */
    resume?(turnId: string): Awaitable<boolean>;
    /** Takes a message into the running turn; `false` refuses. */
    steer?(id: string, text: string, attachments?: MessageAttachment[]): Awaitable<boolean>;
    /** Stops one worker. */
    stopWorker?(toolCallId: string): void;
    /** Answers a tool call that waits for approval. */
    confirm?(toolCallId: string, approved: boolean, optionId?: string): void;
    /** Answers a question; `false` refuses. */
    answer?(requestId: string, accepted: boolean, answers: Record<string, ChatInputAnswer>): Awaitable<boolean>;
    /** Takes one answer of several while a person still writes. */
    setAnswer?(requestId: string, questionId: string, answer?: ChatInputAnswer): Awaitable<boolean>;
    /** Takes the tools bound to this session anew. */
    setTools?(tools: BoundTool[]): Awaitable<boolean>;
    /**
     * Takes the result of a tool a client ran, a `ToolCallResult`: the client's own, or a failed one where the client
     * left or took longer than `clientToolTimeoutMs`. The backend emits `chat/toolCallComplete` with it. `false` refuses.
     */
    completeToolCall?(toolCallId: string, clientId: string, result: unknown): Awaitable<boolean>;
    /** A client left; its running tool calls are failed. */
    clientGone?(clientId: string): void;
    /** Takes a setting; `true`, or the sentence that refuses. */
    setConfig?(key: string, value: unknown): Awaitable<unknown>;
    /** Takes a title. */
    setTitle?(title: string): void;
    /** Turns a customization on or off. */
    setCustomizationEnabled?(id: string, on: boolean): void;
    /** Starts an MCP server. */
    startMcpServer?(id: string): void;
    /** Stops one. */
    stopMcpServer?(id: string): void;
    /** A resource got its token. */
    authenticated?(resource: string, token: string): void;
    /**
     * The backend's name for where a fork after a turn begins; nothing where none can. Without it `forkAt` is the
     * turn's own id.
     */
    forkPoint?(turnId: string): Awaitable<string | null | undefined>;
    /** A sentence, once it can go on no more: every later action is refused with it. */
    ended?(): Awaitable<string | null | undefined>;
}

/** Who a turn came from. */
export interface TurnFrom {
    /** `{ kind }`: `user`, `agent`, `tool`, `automation` or `systemNotification`. */
    origin?: unknown;
    /** The message's own `_meta`. */
    _meta?: JsonObject;
    /** `{ uri }` of the custom agent chosen. */
    agent?: unknown;
}

/** What a second chat may be made from. */
export interface ChatAbilities {
    /** A chat up to one of its turns. */
    fork?: boolean;
    /** A turn, for a conversation beside it. */
    sideChat?: boolean;
}

/**
 * One thing a machine needs to run a backend. The field that names the shape carries its value: `directory`
 * and `file` with `target`, `name`, `source` with `target`, `part`, or `state`.
 */
export interface MachineNeed {
    /** A host directory, mounted at `target`. */
    directory?: string;
    /** A host file, mounted at `target`. */
    file?: string;
    /** An environment variable. */
    name?: string;
    /** A host path copied to `target` after the machine is made. */
    source?: string;
    /**
     * One agent command line, or `ostler` itself, built at the version the host's versions file pins. It is at
     * `/opt/ostler/<part>`, read-only, with the parts it requires beside it.
     */
    part?: string;
    /** A named volume for the agent's own configuration: where in the machine. */
    state?: string;
    /** Where in the machine. */
    target?: string;
    /** Whether a mount may not be written to. */
    readOnly?: boolean;
    /** What stands in for a part the versions file does not pin: a host folder. */
    fallback?: string;
    /** Host files a new volume is seeded from, each under its own name; never a login file. */
    seed?: string[];
    /** The value when neither the profile nor an option gives one. */
    default?: string;
    /** Whether a machine without it is refused. */
    required?: boolean;
    /** For a person. */
    description?: string;
}

/** What a backend offers, asked once at the start. */
export interface Offered {
    /** Its models. */
    models?: OfferedModel[];
    /** Its `/` commands. */
    commands?: OfferedCommand[];
    /** Its customizations. */
    customizations?: Customization[];
}

/** One model. */
export interface OfferedModel {
    /** What `model.id` names. */
    id: string;
    /** Shown to people. */
    name: string;
    /** In tokens. */
    maxContextWindow?: number;
    /** In tokens. */
    maxOutputTokens?: number;
    /** Whether it sees images. */
    supportsVision?: boolean;
}

/** One `/` command. */
export interface OfferedCommand {
    /** Without the slash. */
    name: string;
    /** What it does. */
    description?: string;
}

/** One stored session of a backend. */
export interface Listed {
    /** The backend's own id. */
    id: string;
    /** Its title. */
    title: string;
    /** ISO 8601. */
    createdAt: string;
    /** ISO 8601. */
    modifiedAt: string;
    /** `file://` URIs. */
    workingDirectories?: string[];
}

/** A server tool offered to every session's model. */
export interface Tool {
    /** `{ name, description, inputSchema }` */
    definition: ToolSpec;
    /** What the tool says it does: a claim, by which a backend decides whether to ask a person. */
    effects?: ToolEffects;
    /** Withheld from every session until the operator's `advancedTools` setting allows it. */
    advancedPermission?: boolean;
    /** A text for the model beside the description. */
    instruction?: string;
    /** Whether the model need not be told of it at once. */
    deferLoading?: boolean;
    /** The body. What it throws is what the model is told. */
    run(input: unknown, at: ToolContext): Awaitable<unknown>;
}

/** What a model is told of a tool. */
export interface ToolSpec {
    /** The name a model calls. */
    name: string;
    /** Shown to people. */
    title?: string;
    /** What it does, for the model. */
    description?: string;
    /** JSON Schema of its input. */
    inputSchema?: JsonObject;
    /** JSON Schema of what it answers. */
    outputSchema?: JsonObject;
}

/** Where a tool runs, and what it may do there. */
export interface ToolContext {
    /** The session's URI. */
    session: string;
    /** The chat's URI. */
    chat: string;
    /** The session's backend. */
    provider?: string;
    /** The running turn's id, if one runs. */
    turn(): Promise<string | undefined>;
    /** Every session the host lists. */
    sessions(): Promise<SessionSummary[]>;
    /** The chats of a session. */
    chats(session: string): Promise<ChatSummary[]>;
    /** The turns of a chat, frozen; the session's default chat when none is named. */
    context(session: string, chat?: string): Promise<Frozen<Turn[]>>;
    /** Says something in a chat: at once when it is free, else queued. Answers `sent` or `queued`. */
    send(session: string, chat: string | undefined, text: string): Promise<string>;
    /** Starts a session of this one's owner; answers its URI. */
    create(request: ToolSession): Promise<string>;
    /** Opens one more chat in a session and says the first thing in it; answers its URI. */
    createChat(session: string, request: ToolChat): Promise<string>;
    /** Renames a session. */
    rename(session: string, title: string): Promise<void>;
    /** Removes a session other than this one. */
    remove(session: string): Promise<void>;
    /** Reads what a URI names, as this session's owner. */
    read(uri: string): Promise<string>;
}

/** A session a tool starts. */
export interface ToolSession {
    /** The first turn. */
    prompt: string;
    /** The session's title. */
    title?: string;
    /** A path; this session's own when left out. */
    workingDirectory?: string;
    /** A backend; this session's own when left out. */
    provider?: string;
    /** A model's id. */
    model?: string;
}

/** A chat a tool opens. */
export interface ToolChat {
    /** The first turn. */
    prompt: string;
    /** The chat's title. */
    title?: string;
    /** A model's id. */
    model?: string;
}

/** What a picker is asked for. */
export interface SettingQuery {
    /** What the person typed; empty for what is shown first. */
    query: string;
    /** The backend. */
    provider?: string;
    /** A path. */
    workingDirectory?: string;
    /** The other settings as they are answered so far. */
    [key: string]: unknown;
}

/** One row of a picker. */
export interface SettingChoice {
    /** What the setting becomes. */
    value: string;
    /** Shown to people. */
    label: string;
    /** More words. */
    description?: string;
}

/**
 * Serves `file:` URIs, and paths that have no scheme. It decides which files those are: what a client names is taken
 * nowhere else. Without any of the write half, what it serves is only read.
 */
export interface ResourceStore {
    /** What is in a directory. */
    list(uri: string, reader?: Reader): Awaitable<DirectoryEntry[]>;
    /** What a URI names. */
    read(uri: string, reader?: Reader): Awaitable<ResourceContent>;
    /** Facts about what a URI names, and its own name where that is another. */
    resolve(uri: string, reader: Reader | undefined, options: ResourceResolving): Awaitable<ResourceFacts>;
    /**
     * What a person may mean who typed the beginning of a path after `@`, in a session of that directory; the best
     * first.
     */
    complete(directory: string, typed: string): Awaitable<ResourceCompletion[]>;
    /** Writes what a URI names. */
    write?(uri: string, content: ResourceWrite, writer: ResourceWriter): void;
    /** Removes what a URI names. */
    delete?(uri: string, recursive: boolean, writer: ResourceWriter): void;
    /** Makes a directory and its parents. */
    mkdir?(uri: string, writer: ResourceWriter): void;
    /** Moves a file or a directory. */
    move?(source: string, destination: string, options: ResourceTransfer, writer: ResourceWriter): void;
    /** Copies a file or a directory. */
    copy?(source: string, destination: string, options: ResourceTransfer, writer: ResourceWriter): void;
    /** Answers a request for access; a throw denies it. It gives nothing that a grant does not. */
    request?(uri: string, writer: ResourceWriter, access: ResourceAccess): void;
    /** Watches under a URI; answers the function that stops it. */
    watch?(uri: string, recursive: boolean, onChange: (changes: ResourceChanged[]) => Promise<void>): Awaitable<(() => void) | null | undefined>;
}

/** A person or plugin that reads, subscribes or calls. */
export interface Reader {
    /** `user:<id>` or `plugin:<id>`. */
    id: string;
    /** The roles of the person's record. */
    roles: string[];
    /** `<team>`, `<team>:<project>` or `<team>:*`. */
    memberships: string[];
    /** What the principal holds, as `<subject>:<operation>`. */
    grants: string[];
}

/** How a URI is resolved. */
export interface ResourceResolving {
    /** Whether a symbolic link stands for what it leads to; otherwise it is told of itself. */
    followSymlinks: boolean;
}

/** Facts about what a URI names. */
export interface ResourceFacts {
    /** Its own name, where it was reached by another. */
    uri?: string;
    /** `file`, `directory` or `symlink`. */
    type: string;
    /** In bytes. */
    size?: number;
    /** When it was changed, ISO 8601. */
    mtime?: string;
    /** When it was made, ISO 8601. */
    ctime?: string;
    /** Its media type. */
    contentType?: string;
    /** Changes with the content. */
    etag?: string;
}

/** One file or directory a person may mean. */
export interface ResourceCompletion {
    /** Its URI. */
    uri: string;
    /** As it is written after `@`: from the session's directory on. A directory's ends with a slash. */
    path: string;
}

/** What is to be written. */
export interface ResourceWrite {
    /** The text, or base64 of the bytes. */
    data: string;
    /** Which of the two; `utf-8` where left out. */
    encoding?: Encoding;
    /** Its media type. */
    contentType?: string;
    /** Refuse when something is there. */
    createOnly: boolean;
    /** Refuse when what is there has another etag. */
    ifMatch?: string;
    /** `truncate` (where left out), `append` or `insert`. */
    mode?: WriteMode;
    /** Bytes from the start; from the end for `append`. */
    position: number;
}

/** Where a write goes. */
export type WriteMode = 'truncate' | 'append' | 'insert';

/** Who writes. */
export interface ResourceWriter {
    /** `user:<id>`, `plugin:<id>` or `root:<host>`; absent on a host with no users directory. */
    owner?: string;
    /** The client's id. */
    client?: string;
    /** The principal; absent on a host with no users directory and on the root connection. */
    reader?: Reader;
}

/** How a move or copy treats what is in the way. */
export interface ResourceTransfer {
    /** Refuse rather than overwrite. */
    failIfExists: boolean;
}

/** What access is asked for. */
export interface ResourceAccess {
    /** To read. */
    read: boolean;
    /** To write. */
    write: boolean;
}

/** One change under a watched URI. */
export interface ResourceChanged {
    /** What changed. */
    uri: string;
    /** How. */
    type: ChangeType;
}

/** Whether to take over a port that is held. */
export type When = 'replace';

/**
 * Serves one URI scheme. Every member beyond `read` is optional; the ones there are advertise what the
 * scheme can do and become grants on it (`read` asks for `<scheme>:get`, `write` for `<scheme>:put`, every
 * other one for its own name).
 */
export interface ResourceProvider {
    /** What a URI names. */
    read(uri: string, reader?: Reader): Awaitable<ResourceContent>;
    /** What is under a URI; asked for the scheme's root too. */
    list?(uri: string, reader?: Reader): Awaitable<DirectoryEntry[]>;
    /** Writes what a URI names. */
    write?(uri: string, content: ResourceWrite, writer: ResourceWriter): void;
    /** Facts about what a URI names. */
    resolve?(uri: string, reader: Reader | undefined, options: ResourceResolving): Awaitable<ResourceFacts>;
    /** Removes what a URI names. */
    delete?(uri: string, recursive: boolean, writer: ResourceWriter): void;
    /** Makes a directory. */
    mkdir?(uri: string, writer: ResourceWriter): void;
    /** Moves within the scheme. */
    move?(source: string, destination: string, options: ResourceTransfer, writer: ResourceWriter): void;
    /** Copies within the scheme. */
    copy?(source: string, destination: string, options: ResourceTransfer, writer: ResourceWriter): void;
    /** Answers a request for access. */
    request?(uri: string, writer: ResourceWriter, access: ResourceAccess): void;
    /** Watches under a URI; answers the function that stops it. */
    watch?(uri: string, recursive: boolean, onChange: (changes: ResourceChanged[]) => Promise<void>): Awaitable<(() => void) | null | undefined>;
    /** What a client may be told about the scheme. */
    describe?(): Awaitable<SchemeDescription>;
    /** Asked before the grant is required; may let a reader read. */
    authorize?(uri: string, reader: Reader): Awaitable<boolean>;
    /** Operations beyond the ten, advertised and granted under these names. */
    operations?: string[];
}

/** What a client may be told about a scheme. */
export interface SchemeDescription {
    /** What it is called. */
    title?: string;
    /** More words. */
    description?: string;
    /** JSON Schema of what is written. */
    manifest?: JsonObject;
}

/**
 * A channel of a plugin's own: clients subscribe to URIs of its scheme and are sent what the plugin publishes.
 * No client dispatches there.
 */
export interface Channel {
    /** The grant a subscribe needs: `<subject>:<operation>`. */
    grant: string;
    /**
     * The state a subscribe answers. It is asked once the client counts as a subscriber: what is published from
     * then on follows the state, so an action may be in both.
     */
    snapshot(uri: string, reader: Reader | undefined, client: string): Awaitable<unknown>;
    /** Asked only of a reader the grant refused; may let it in. */
    authorize?(uri: string, reader: Reader): Awaitable<boolean>;
    /** Called once a client watches no URI of the scheme on any connection. */
    left?(client: string): void;
    /** Names the channel to clients; the title is the scheme where it has none. */
    describe?(): Awaitable<Description>;
}

/** What a client may be told about a channel or a command. */
export interface Description {
    /** What it is called. */
    title?: string;
    /** More words. */
    description?: string;
}

/** What `registerChannel` answers. */
export interface ChannelHandle {
    /**
     * Sends an action to whoever watches a URI, under the host's next number; its `type` starts with `<scheme>/`.
     * Actions of one URI are sent in the order they were published. Throws before the host is built.
     */
    publish(uri: string, action: JsonObject, options?: PublishOptions): void;
    /** Who watches a URI, once per client id and person. */
    subscribers(uri: string): Subscriber[];
}

/** Who is sent an action. */
export interface PublishOptions {
    /**
     * Asked for each subscriber at the send, and again when the action is replayed; one it refuses or throws
     * for is not sent the action.
     */
    visible?(reader: Reader | undefined, client: string): Awaitable<boolean>;
    /** The one client that gets it. */
    to?: string;
}

/** Somebody who watches a URI of a channel. */
export interface Subscriber {
    /** The client's id. */
    client: string;
    /** Who it is; absent on a host with no users directory and on the root connection. */
    reader?: Reader;
}

/** A command a client sends by name. A plugin names its own after itself: `x-<plugin>/<verb>`. */
export interface Method {
    /** The grant a call needs: `<subject>:<operation>`. */
    grant: string;
    /** Asked only of a caller the grant refused; may let it in. */
    authorize?(params: JsonObject, reader: Reader): Awaitable<boolean>;
    /**
     * Answers one request with the result; a thrown `RpcError` is what the caller is told. `owner` is whose work
     * the call is: `user:<id>`, `plugin:<id>` or `root:<host>`, absent on a host with no users directory.
     */
    handle(params: JsonObject, reader: Reader | undefined, client: string, owner?: string): Awaitable<unknown>;
    /** Names the command to clients; the title is the name where it has none. */
    describe?(): Awaitable<Description>;
}

/** What opens terminals. The host lists each one, keeps what it said last, and serves it to whoever watches. */
export interface TerminalStore {
    /**
     * Opens a terminal. What its process says, from the first moment on, goes to `events`. A directory that is
     * not there is a shell that failed: its reason is output, and it exits with 127.
     */
    create(request: TerminalRequest, events: TerminalEvents): Awaitable<Terminal>;
    /** Called once when the host closes, after its terminals have ended. */
    close?(): void;
}

/** A terminal asked for. */
export interface TerminalRequest {
    /** Its URI, as the host lists it. */
    terminal: string;
    /** A path; the host's first directory where nobody named one. */
    cwd?: string;
    /** What to run instead of a shell: with `args` a program, without them a line for the shell. */
    command?: string;
    /** The program's arguments, each of them one word. */
    args?: string[];
    /** The shell the asking person prefers; the store's own choice where there is none. */
    shell?: string;
    /** Variables beside the host's environment. */
    env: Record<string, string>;
    /** Width in columns. */
    cols: number;
    /** Height in rows. */
    rows: number;
}

/** What a terminal says, to be called by the store that opened it. */
export interface TerminalEvents {
    /**
     * Output. Of a pseudoterminal, marks of shell integration (OSC 133, 633 and 7) are read and taken out by the
     * host, which reports commands and directories by them.
     */
    data(data: string): void;
    /** The process has ended and everything it said was said. Once; what comes later is dropped. */
    exited(exitCode?: number): void;
    /** The process changed its title. */
    title(title: string): void;
    /** The process works somewhere else now: a path. */
    cwd(cwd: string): void;
}

/** A terminal opened. */
export interface Terminal {
    /** What it is called where nobody named it: its shell, say. */
    title?: string;
    /** Where it works, where that is not what was asked: a path. */
    cwd?: string;
    /** Whether a pseudoterminal stands behind it; plain pipes do where it does not say. */
    isPty?: boolean;
    /** Takes what was typed. */
    input(data: string): void;
    /** Takes another size. The host only writes it down where it is left out. */
    resize?(cols: number, rows: number): void;
    /** Ends its processes: `SIGTERM` where no signal is named. The terminal stays listed, with what it said. */
    kill?(signal?: string): void;
    /** Ends its processes and lets go of everything. */
    dispose(): void;
}

/**
 * How a backend runs its process in a named machine. A session names one in its setting `computer`: an address,
 * `computer://<id>`, or what one is made from, `disposable:<profile>` and `devcontainer://<folder>`.
 *
 * What a machine needs is the host's to find out; `make` is handed the plan.
 */
export interface Computers {
    /** What to start on this host so that `process` runs in the machine, with its streams as its own. */
    how(computer: string, process: MachineProcess): Awaitable<MachineProcess>;
    /** The machines there are. Without it any address is taken at its word, until `how` refuses it. */
    list?(): Awaitable<Computer[]>;
    /** What machines are made from, by name. */
    profiles?(): Awaitable<Record<string, MachineProfile>>;
    /** Makes a machine to a plan; answers its address. Without it only machines that are there can be named. */
    make?(request: MachineRequest): Awaitable<string>;
    /** Stops a machine and removes it. */
    remove?(computer: string): void;
    /** A session that ran in a machine is gone: what was made for it alone may go too. */
    left?(computer: string, session: string): void;
    /** Called once when the host closes. */
    close?(): void;
}

/** One machine. */
export interface Computer {
    /** The last part of its address. */
    id: string;
    /** Shown to people. */
    title?: string;
    /** One line. */
    description?: string;
    /** Whether it runs. */
    running?: boolean;
    /** The backends that may use it; every one where it does not say. */
    agents?: string[];
    /** Where work begins whose folder is not mounted: a path. */
    workdir?: string;
    /** Which folders of this host it sees. */
    mounts?: MachineMount[];
}

/** A folder or file of this host seen in a machine. */
export interface MachineMount {
    /** On this host: a path. */
    source: string;
    /** In the machine: a path. */
    target: string;
    /** Whether it may not be written to. */
    readOnly?: boolean;
}

/** What machines are made from. A plugin may keep more in it; the host reads this. */
export interface MachineProfile {
    /** Shown to people. */
    title?: string;
    /** One line. */
    description?: string;
    /** The backends its machines are for; the asking session's where it names none. */
    agents?: string[];
    /** Values of their needs, by the needs' names. */
    needs?: Record<string, string>;
}

/** A machine asked for. */
export interface MachineRequest {
    /** What it is made from: `disposable:<profile>` or `devcontainer://<folder>`. */
    source: string;
    /** The profile's name, where there is one. */
    profile?: string;
    /** The session it is made for. */
    session: string;
    /** Whose the session is, on a host that knows people. */
    owner?: string;
    /** The session's first directory on this host: a path. */
    workingDirectory?: string;
    /** The backends it is prepared for, to be listed with it. */
    agents: string[];
    /** What it is given. */
    plan: MachinePlan;
}

/** What a machine is given, every path of this host checked. */
export interface MachinePlan {
    /** Folders and files of this host, mounted. */
    mounts: MachineMount[];
    /** Environment variables, as `-e <name>=<value>`. */
    env: Record<string, string>;
    /** Folders and files of this host, copied in after the machine is made and before it first starts. */
    copies: MachineCopy[];
    /** Images of parts, mounted read-only. */
    parts: MachinePart[];
    /** Named volumes. */
    volumes: MachineVolume[];
}

/** A folder or file of this host copied into a machine. */
export interface MachineCopy {
    /** On this host: a path. */
    source: string;
    /** In the machine: a path. */
    target: string;
}

/**
 * One agent command line, or the daemon itself, at the version the host's versions file pins: the machine maker
 * builds its image and mounts it, read-only.
 */
export interface MachinePart {
    /** Its name. */
    part: string;
    /** The version pinned. */
    version: string;
    /** Where in the machine: `/opt/ostler/<part>`. */
    target: string;
    /** The package it is built from, where the versions file names one. */
    package?: string;
}

/** A named volume for an agent's own configuration. */
export interface MachineVolume {
    /** Its name: the same for every machine of one backend and one owner. */
    name: string;
    /** Where in the machine: a path. */
    target: string;
    /** Files copied into it when it is made. */
    seed: MachineCopy[];
}

/**
 * What makes dev containers. With it the host serves its dev-container commands and says so at `initialize`; without
 * it, neither.
 */
export interface Containers {
    /** Whether a container can be made now. */
    available(): Awaitable<boolean>;
    /**
     * Makes the container of a folder, or takes the one there is, and connects to the host inside it. What that
     * host says goes to `events`.
     */
    make(request: ContainerRequest, events: ContainerEvents): Awaitable<DevContainer>;
    /** Writes one frame to the host inside, for a connection that `make` opened. */
    write(container: string, connection: string, data: string): void;
    /** Stops a container. It is there again at the next `make` of its folder. */
    stop(container: string): void;
    /** Stops a container and removes it. */
    remove(container: string): void;
    /** Ends one connection; the container goes on. */
    disconnect?(container: string, connection: string): void;
    /** Called once when the host closes. */
    close?(): void;
}

/** A container asked for. */
export interface ContainerRequest {
    /** The connection that is opened with it: the host's own name for it, given to `write`. */
    connection: string;
    /** The folder on this host: a path. */
    workspaceFolder: string;
    /** Shown to people. */
    name?: string;
}

/** What the host in a container says, to be called by what made it. */
export interface ContainerEvents {
    /** One frame of the host inside. */
    message(data: string): void;
    /** A line that is no frame, of the making or of the host inside. */
    output(data: string): void;
    /** The connection has ended. */
    closed(): void;
}

/** A container made. */
export interface DevContainer {
    /** Its id. */
    id: string;
    /** What it is called, where that is not what was asked. */
    name?: string;
    /** The folder inside: a path. */
    remoteWorkspaceFolder: string;
    /** The folder on this host, where it is mounted: a path. */
    hostWorkspaceFolder?: string;
}

/**
 * Tells what sessions changed. With one registered, each session lists its changesets, and a client subscribes to
 * `<session>/changeset/<scope>`.
 */
export interface Changes {
    /** Which changesets a session has. */
    scopes(of: ChangesOf): Awaitable<ChangeScope[]>;
    /** What a changeset holds now. */
    state(of: ChangesOf, scope: string): Awaitable<ChangesState>;
    /** What a listing shows of a session's changes, or nothing. */
    summary(of: ChangesOf): Awaitable<ChangesSummary | null | undefined>;
    /** Runs one of the operations a changeset offers. */
    operate?(of: ChangesOf, scope: string, operation: string, target?: ChangesetOperationTarget): Awaitable<InvokeChangesetOperationResult>;
}

/** Whose changes are asked for. */
export interface ChangesOf {
    /** The session's URI. */
    session: string;
    /** The path it works in, where it has one. */
    directory?: string;
}

/** One changeset of a session. */
export interface ChangeScope {
    /** What follows `<session>/changeset/`: `session`, `uncommitted`, `turn/{turnId}`, … */
    scope: string;
    /** Shown to people. */
    label: string;
    /** More words. */
    description?: string;
    /** `session`, `branch`, `uncommitted`, `turn`, `compare-turns` or `other`, as where left out. */
    changeKind?: string;
    /** Whether people mark its files as seen; the host keeps the marks. */
    review?: boolean;
}

/** What a changeset holds. */
export interface ChangesState {
    /** Its files. */
    files?: ChangesetFile[];
    /** What may be done with them. */
    operations?: ChangesetOperation[];
}

/**
 * Tells facts about a directory, as its branch and how far it is ahead. They stand in the `_meta` of every session that
 * works there, where clients read them.
 */
export interface Directories {
    /** The facts of a directory, by key. Keys of the host's own are passed over. */
    meta(directory: string): Awaitable<JsonObject>;
    /** Says that a turn has ended there, so that what was known may be old. */
    refresh?(directory: string): void;
}

/**
 * Makes working trees. With one registered, a session whose directory is in a repository may be given a tree of its
 * own: the host asks before it starts the backend, whoever starts the session. Directories are paths.
 */
export interface Worktrees {
    /** The repository a directory is in, or nothing. */
    repository(directory: string): Awaitable<Repository | null | undefined>;
    /** Its branches that hold what a person typed, newest commit first. */
    branches(repository: string, typed: string): Awaitable<string[]>;
    /** Makes a tree. */
    create(request: WorktreeRequest): Awaitable<Worktree>;
    /** Whether a tree holds work that is not committed. */
    dirty(tree: string): Awaitable<boolean>;
    /** Removes a tree; its branch stays. */
    remove(tree: string): void;
    /** Where git keeps what it knows of a tree: what moves there moves with every commit and every staged file. */
    gitDir?(tree: string): Awaitable<string | null | undefined>;
}

/** A repository. */
export interface Repository {
    /** The path of its own tree. */
    root: string;
}

/** A tree asked for. */
export interface WorktreeRequest {
    /** The path of the repository. */
    repository: string;
    /** What the tree is to be called: a word no other tree of this host has. */
    name: string;
    /** The branch to begin from; the one committed to last where left out. */
    branch?: string;
    /** Whether the tree gets a branch of its own; otherwise it is on the branch itself. */
    createNewBranch: boolean;
    /** What the name of that branch begins with. */
    branchPrefix?: string;
    /** Whether that branch tracks the one it began from. */
    track: boolean;
    /** Ignored files to copy, as gitignore patterns; after the links. */
    includeFiles: string[];
    /** Ignored folders to link, as gitignore patterns. */
    symlinkFolders: string[];
}

/** A tree that was made. */
export interface Worktree {
    /** Its path. */
    path: string;
    /** The branch it is on. */
    branch?: string;
}

/** Finds and makes pull requests. What it finds for a session's branch stands in the session's `_meta`. */
export interface PullRequests {
    /** What a client gives a token for, as it is advertised beside each backend's own. */
    resource: ProtectedResourceMetadata;
    /** The pull request of a branch, or nothing. */
    forBranch(asked: BranchAsked): Awaitable<PullRequest | null | undefined>;
    /** Makes one. */
    create(request: PullRequestRequest): Awaitable<PullRequest>;
}

/** A branch somebody works on. */
export interface BranchAsked {
    /** The path of the directory. */
    directory: string;
    /** The branch, where it is known. */
    branch?: string;
    /** The token a client gave for the resource. */
    token?: string;
}

/** A pull request. */
export interface PullRequest {
    /** Whose the repository is. */
    owner: string;
    /** The repository. */
    repo: string;
    /** Where it is read. */
    url: string;
    /** Its branch. */
    branch: string;
    /** Whether it may still be merged. */
    state: PullRequestState;
}

/** Whether a pull request may still be merged. */
export type PullRequestState = 'open' | 'closed' | 'merged';

/** A pull request asked for. */
export interface PullRequestRequest {
    /** The path of the directory. */
    directory: string;
    /** The branch, where it is known. */
    branch?: string;
    /** The token a client gave for the resource. */
    token?: string;
    /** What it is called. */
    title: string;
    /** What it says. */
    body?: string;
    /** The branch it is to be merged into; the repository's own where left out. */
    base?: string;
    /** Whether it is a draft. */
    draft: boolean;
}

/** Where automations and their runs are kept. */
export interface AutomationStore {
    /** Every automation. */
    list(): Awaitable<KeptAutomation[]>;
    /** One of them, or nothing. */
    get(id: string): Awaitable<KeptAutomation | null | undefined>;
    /** Event types beyond the host's and the plugins' that this store's automations may wait for. */
    triggers(): Awaitable<AutomationTriggerDefinition[]>;
    /** Keeps a new one. */
    create(id: string, definition: AutomationDefinition, owner?: string): Awaitable<KeptAutomation>;
    /** Changes one: keys left out stay as they are. */
    update(id: string, changes: AutomationDefinitionPatch): Awaitable<KeptAutomation>;
    /** Forgets one; `true` when there was one. */
    remove(id: string): Awaitable<boolean>;
    /** Keeps a run, replacing what its URI held. Once this resolves a crash does not lose it. */
    run(run: AutomationRunState): void;
    /** One run by its URI, or nothing. */
    runOf(uri: string): Awaitable<AutomationRunState | null | undefined>;
    /** The runs of an automation, newest first, a page at a time. */
    runs(id: string, cursor?: string): Awaitable<RunPage>;
    /** Calls back after a definition was changed from outside; answers the function that stops it. */
    watch?(onChange: (change: AutomationChange) => Promise<void>): Awaitable<(() => void) | null | undefined>;
    /** The runs that had not ended when the host last stopped. */
    unfinished?(): Awaitable<AutomationRunState[]>;
    /**
     * How far the schedules of an automation have come, or nothing. A store without this and `keep_progress` has
     * automations whose schedules do not fire.
     */
    progress?(id: string): Awaitable<AutomationProgress | null | undefined>;
    /** Keeps how far the schedules of an automation have come. */
    keepProgress?(id: string, progress: AutomationProgress): void;
    /** Where definitions are kept, for the announcement. */
    place?: string;
    /** Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet. */
    close?(): void;
}

/** An automation as it is kept. */
export interface KeptAutomation {
    /** Its id: the last part of its URI. */
    id: string;
    /** What it does and when. */
    definition: AutomationDefinition;
    /** Whose it is; fixed when it is made. */
    owner?: string;
    /** ISO 8601. */
    createdAt: string;
    /** ISO 8601. */
    modifiedAt: string;
}

/** A page of runs. */
export interface RunPage {
    /** Newest first. */
    runs: AutomationRunState[];
    /** Where the next page begins; absent on the last. */
    nextCursor?: string;
}

/** One definition changed from outside. */
export interface AutomationChange {
    /** The automation. */
    id: string;
    /** How. */
    type: ChangeType;
}

/** How far the schedules of an automation have come. */
export interface AutomationProgress {
    /** Its schedule triggers. */
    schedules: ScheduleProgress[];
    /** Scheduled runs counted against `afterRuns`; absent where there is no such condition. */
    runCount?: number;
}

/** How far one schedule trigger has come. */
export interface ScheduleProgress {
    /** The trigger. */
    trigger: string;
    /** The expression that `next` was worked out from. */
    expression: string;
    /** Its time zone. */
    timeZone: string;
    /** The earliest occurrence that has not been dealt with, ISO 8601. */
    next: string;
}

/** Where sessions are kept, by their id. Once a `set…` resolves a crash does not lose it. */
export interface SessionStore {
    /** Read and archived marks. */
    flags(id: string): Awaitable<SessionFlags | null | undefined>;
    /** Keeps the marks. */
    setFlags(id: string, flags: SessionFlags): void;
    /** Who the session is and how it is set up, or nothing. */
    config(id: string): Awaitable<KeptSession | null | undefined>;
    /** Keeps that. */
    setConfig(id: string, session: KeptSession): void;
    /** Artifacts and references of the session. */
    artifacts(id: string): Awaitable<unknown[]>;
    /** Keeps them. */
    setArtifacts(id: string, artifacts: unknown[]): void;
    /** Pull requests of the session, by working directory. */
    pullRequests(id: string): Awaitable<JsonObject>;
    /** Keeps them. */
    setPullRequests(id: string, pullRequests: JsonObject): void;
    /** A chat's title, if a person or agent gave it one. */
    chatTitle(id: string, chat: string): Awaitable<string | null | undefined>;
    /** Keeps it; nothing takes it back. */
    setChatTitle(id: string, chat: string, title?: string): void;
    /** The session's chats. */
    chats(id: string): Awaitable<KeptChat[]>;
    /** Keeps them. */
    setChats(id: string, chats: KeptChat[]): void;
    /** The ids of the sessions held. */
    sessions(): Awaitable<string[]>;
    /** Forgets everything about a session. */
    forget(id: string): void;
    /** Every session with its marks, at once; the host asks one by one where it is left out. */
    all?(): Awaitable<StoredSession[]>;
    /** One session with its marks and chats, or nothing; the host asks for them one by one where it is left out. */
    session?(id: string): Awaitable<StoredSession | null | undefined>;
    /**
     * A page of the listing: up to `limit` sessions, the latest `modifiedAt` first and by `uri` among equal ones,
     * compared as text, beginning after a place. Fewer than `limit` only where nothing follows. A store that has
     * `page`, `sessionOfChat` and `drafts` is read on demand; of any other, every session is loaded at the start.
     */
    page?(limit: number, after?: ListedPlace): Awaitable<StoredSession[]>;
    /**
     * The id of the session that has an open chat of that URI, or nothing; the one stored first where several do. A
     * default chat with the URI the host gave it may be left out.
     */
    sessionOfChat?(chat: string): Awaitable<string | null | undefined>;
    /** The ids of the sessions that have `draft`. */
    drafts?(): Awaitable<string[]>;
    /** How many sessions are held; the host counts `sessions()` where it is left out. */
    count?(): Awaitable<number>;
    /** The turns of a chat, oldest first. Where any of these three is left out the host keeps turns itself. */
    turns?(id: string, chat: string): Awaitable<Turn[]>;
    /** Keeps a turn at its place, replacing what the place held. */
    setTurn?(id: string, chat: string, place: number, turn: KeptTurn): void;
    /** Forgets the turns of a chat from a place on. */
    dropTurns?(id: string, chat: string, from: number): void;
    /** The annotations of a session. Where this or `setAnnotations` is left out the host keeps annotations itself. */
    annotations?(id: string): Awaitable<unknown[]>;
    /** Keeps them. */
    setAnnotations?(id: string, annotations: unknown[]): void;
    /**
     * Keeps an attachment beside a session; the same id is the same content. Where either of these two is left out the
     * host keeps attachments itself.
     */
    setAttachment?(id: string, attachment: string, content: KeptAttachment): void;
    /** An attachment by its id, whichever session it is kept beside, or nothing. */
    attachment?(attachment: string): Awaitable<KeptAttachment | null | undefined>;
    /** Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet. */
    close?(): void;
}

/** Marks of a session, shared by all clients. */
export interface SessionFlags {
    /** Somebody has seen what it said last. */
    isRead?: boolean;
    /** It was put away. */
    isArchived?: boolean;
}

/** Who a session is and how it is set up. */
export interface KeptSession {
    /** Its URI, as the host lists it. */
    uri: string;
    /** Its backend. */
    provider: string;
    /** `user:<id>`, `plugin:<id>`, …; absent without a users directory. */
    owner?: string;
    /** Its title. */
    title: string;
    /** ISO 8601; never moves. */
    createdAt: string;
    /** ISO 8601. */
    modifiedAt: string;
    /** Settings chosen. */
    values?: JsonObject;
    /** `file://` URIs. */
    workingDirectories?: string[];
    /** What made it, where that was no person: `{ kind: "automation", automation, run }`. */
    origin?: unknown;
    /** The backend's own id to continue. */
    backendId?: string;
    /** The working tree made for it, which goes with it. */
    worktree?: Worktree;
    /** `{ team, project }` the work is charged to. */
    scope?: unknown;
    /** Present while the session is a draft: a client created it and no turn has started. */
    draft?: KeptDraft;
    /** How many annotations it has. */
    annotations?: AnnotationCounts;
}

/** A session that is not announced and not listed before its first turn. */
export interface KeptDraft {
    /** The client that created it. */
    client?: string;
}

/** How many annotations a session has. */
export interface AnnotationCounts {
    /** Annotations. */
    annotations: number;
    /** Entries of all of them. */
    entries: number;
}

/** One chat of a session. */
export interface KeptChat {
    /** Its URI. */
    uri: string;
    /** The name its conversation is kept under at the backend. */
    backendId?: string;
    /** Its title. */
    title?: string;
    /** What it was made from. */
    origin?: unknown;
    /** Whether it is the session's default chat. */
    default?: boolean;
    /** Whether it was closed: its conversation stays claimed and is not listed. */
    closed?: boolean;
    /** What waits to be said. */
    queued?: unknown[];
    /** What somebody is writing. */
    draft?: unknown;
    /** Whether its title came of what was said first; another one was given to it. */
    derived?: boolean;
    /** The part of the session's folders it works in, as `file://` URIs; all of them where left out. */
    workingDirectories?: string[];
    /** Its own marks. */
    flags?: SessionFlags;
    /** Hidden context its first turn still has to be given. */
    context?: string;
    /** Whether turns were removed from it that its backend still has to be told of. */
    rewind?: boolean;
    /** The queued message that a turn is being started with. It waits again where the turn is not in the store. */
    starting?: StartingTurn;
}

/** A turn that takes a queued message. */
export interface StartingTurn {
    /** The turn's id. */
    turn: string;
    /** The message as it waited. */
    queued: unknown;
}

/** A session with its marks. */
export interface StoredSession {
    /** Its id. */
    id: string;
    /** Who it is. */
    session: KeptSession;
    /** Its marks. */
    flags?: SessionFlags;
    /** Its chats; the host asks for them one by one where they are left out. */
    chats?: KeptChat[];
}

/** A place in the listing of sessions: that of the session a page ended with. */
export interface ListedPlace {
    /** Its `modifiedAt`. */
    modifiedAt: string;
    /** Its URI. */
    uri: string;
}

/** A turn as it is kept: a finished one, or a running one as far as it has come. */
export interface KeptTurn {
    /** The turn. One still running is kept as if it had failed, which is what a crash makes of it. */
    turn: Turn;
    /** Who sent it. */
    sender?: string;
    /** The backend's own name for it. */
    transcriptId?: string;
}

/** What a message brought along and now refers to. */
export interface KeptAttachment {
    /** Its media type. */
    contentType: string;
    /** Its bytes, as base64. */
    data: string;
}

/**
 * Where secrets are kept. A plugin that provides one must be listed first in the configuration, and its own
 * options cannot name a secret.
 */
export interface Vault {
    /** The value under `host:<name>`, `team:<team>/<name>` or `user:<id>/<name>`, or nothing. */
    get(name: string): Awaitable<string | null | undefined>;
    /** Keeps a value under a name. */
    set(name: string, value: string): void;
    /** Forgets a name; `true` when there was one. */
    delete(name: string): Awaitable<boolean>;
    /** The names, never the values. */
    list(): Awaitable<string[]>;
    /** Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet. */
    close?(): void;
}

/**
 * Where policies are kept. An id is unique in the whole store: it is one address, `policy://<id>`. The host checks
 * every row it is given with [`check_policy`](crate::policy::check_policy).
 */
export interface Policies {
    /** Every row, in the order they were put. */
    list(): Awaitable<JsonObject[]>;
    /** The row of an id, or nothing. */
    get(id: string): Awaitable<JsonObject | null | undefined>;
    /** Keeps a row, in place of the one of its id. */
    put(policy: JsonObject): void;
    /** Forgets a row; `true` when there was one. */
    remove(id: string): Awaitable<boolean>;
    /** Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet. */
    close?(): void;
}

/** Tells how the host is. Every member is optional, and what is there is advertised. */
export interface Diagnostics {
    /**
     * Tells log records of a level (`trace`, `debug`, `info`, `warn`, `error` or `fatal`) and above, each as an OTLP
     * `ExportLogsServiceRequest` in JSON, until the answer is called.
     */
    logs?(level: string, told: (object: JsonObject) => Promise<void>): Awaitable<(() => void) | null | undefined>;
    /** Tells spans, each as an OTLP `ExportTraceServiceRequest` in JSON, until the answer is called. */
    traces?(told: (object: JsonObject) => Promise<void>): Awaitable<(() => void) | null | undefined>;
    /** Tells measurements, each as an OTLP `ExportMetricsServiceRequest` in JSON, until the answer is called. */
    metrics?(told: (object: JsonObject) => Promise<void>): Awaitable<(() => void) | null | undefined>;
    /** Facts about the network as the host sees it. */
    network?(): Awaitable<JsonObject>;
    /** Tries to reach a URL; answers what came of it. */
    fetch?(url: string): Awaitable<JsonObject>;
}

/** Where use is kept. What was written is never changed. */
export interface Usage {
    /** Keeps one entry. Once it resolves a crash does not lose it; a throw reaches whoever recorded it. */
    record(entry: UsageEntry): void;
    /** What the entries asked for come to. */
    total(query: UsageQuery): Awaitable<UsageTotal>;
    /** Every pool that was ever charged, in order. */
    pools(): Awaitable<string[]>;
    /** The entries asked for, newest first. */
    records(query: UsageQuery): Awaitable<UsageEntry[]>;
    /** Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet. */
    close?(): void;
}

/** Which entries are asked for. */
export interface UsageQuery {
    /** Those that charged this pool; every one where left out. */
    pool?: string;
    /** From this instant on, ISO 8601 in UTC. */
    from?: string;
    /** Before this instant, ISO 8601 in UTC. */
    until?: string;
    /** At most as many. */
    limit?: number;
}

/** What entries come to: the measures that were charged, and no others. */
export interface UsageTotal {
    /** US dollars. */
    usd?: number;
    /** The dollars for what models were given. */
    inputUsd?: number;
    /** The dollars for what models said. */
    outputUsd?: number;
    /** Every token: given, said, and of a cache. */
    tokens?: number;
    /** Tokens models were given. */
    input?: number;
    /** Tokens models said. */
    output?: number;
    /** Tokens read from a cache. */
    cacheRead?: number;
    /** Tokens written to a cache. */
    cacheWrite?: number;
    /** Entries of models. */
    calls?: number;
    /** For how long machines were used. */
    seconds?: number;
}

/** Where records are kept. */
export interface RecordStore {
    /** Opens a collection. */
    collection(name: string, options: CollectionOptions): Awaitable<StoredCollection>;
    /** Called once when the host closes, after its sessions and what plugins do then: keeps what is not kept yet. */
    close?(): void;
}

/** A collection as a store serves it. */
export interface StoredCollection {
    /** The record of an id, or nothing. */
    get(id: string): Awaitable<JsonObject | null | undefined>;
    /** Every record. */
    list(): Awaitable<JsonObject[]>;
    /** The records whose top-level fields equal each field of `match`. */
    find(match: JsonObject): Awaitable<JsonObject[]>;
    /** Keeps a record, replacing what its id held. Refuses an id that is no slug. */
    put(record: JsonObject): void;
    /** Forgets a record; `true` when there was one. */
    remove(id: string): Awaitable<boolean>;
    /** Calls back after each change; answers the function that stops it. */
    watch(onChange: (change: RecordChange) => Promise<void>): Awaitable<(() => void) | null | undefined>;
}

/** An event trigger type an automation may be saved with. The plugin fires it with `fireTrigger`. */
export interface TriggerType {
    /** Its name. `session` and `watch` are the host's own. */
    type: string;
    /** What it is called. */
    title: string;
    /** More words. */
    description?: string;
    /** At least one, with ids unique within the type. */
    events: TriggerEvent[];
    /** JSON Schema a client draws the trigger's settings from. */
    configSchema?: JsonObject;
}

/** One event of a type. */
export interface TriggerEvent {
    /** What `fireTrigger` and an automation's trigger name. */
    id: string;
    /** What it is called. */
    title: string;
    /** More words. */
    description?: string;
}

/** The chat a preamble is asked for. */
export interface PreambleChat {
    /** The session's URI. */
    session: string;
    /** The new chat's URI. */
    chat: string;
    /** What the chat is made from. */
    origin: ChatOrigin;
    /** The chats the session has already. */
    chats: ChatSummary[];
}

/** The name of an event. */
export type EventName =
    | 'session_start'
    | 'session_end'
    | 'session_opened'
    | 'turn_start'
    | 'turn_end'
    | 'message'
    | 'tool_call'
    | 'input_needed_set'
    | 'input_needed_removed'
    | 'client_connect'
    | 'client_disconnect'
    | 'authenticated'
    | 'automation_fire'
    | 'resource_write'
    | 'terminal_open'
    | 'listening'
    | 'stopping'
    | 'log';

/** Something that happened. Listeners are told after it did and cannot refuse or rewrite it. */
export type Event =
    /** A session is announced: at once, or with its first turn where a client created it over `createSession`. */
    | {
          type: 'session_start';
          /** Its URI. */
          session: string;
          /** Its backend. */
          provider: string;
          /** The client of this host that made it, if one did. */
          client?: string;
      }
    /** An announced session is gone. */
    | {
          type: 'session_end';
          /** Its URI. */
          session: string;
          /** Why, in a word: `disposed`, `failed`, `closing`. */
          reason: string;
      }
    /** A client looks at a session, which may not be announced yet. */
    | {
          type: 'session_opened';
          /** Its URI. */
          session: string;
          /** The client. */
          client: string;
      }
    /** A turn began. */
    | {
          type: 'turn_start';
          /** The session's URI. */
          session: string;
          /** The chat's URI. */
          chat: string;
          /** The turn's id. */
          turn: string;
          /** `user:<id>`, `root:<host>` or `plugin:<id>`, when the host knows who sent it. */
          sender?: string;
      }
    /** A turn ended. */
    | {
          type: 'turn_end';
          /** The session's URI. */
          session: string;
          /** The chat's URI. */
          chat: string;
          /** The turn's id. */
          turn: string;
          /** How. */
          status: TurnStatus;
          /** Who had sent it. */
          sender?: string;
      }
    /** Somebody said something. */
    | {
          type: 'message';
          /** The session's URI. */
          session: string;
          /** The chat's URI. */
          chat: string;
          /** The turn's id. */
          turn: string;
          /** What was said. */
          text: string;
      }
    /** A host tool was called. */
    | {
          type: 'tool_call';
          /** The session's URI. */
          session: string;
          /** The chat's URI. */
          chat: string;
          /** The tool's name. */
          tool: string;
          /** Whether it went well. */
          ok: boolean;
          /** What it failed with. */
          error?: string;
      }
    /** A session waits for somebody. */
    | {
          type: 'input_needed_set';
          /** The session's URI. */
          session: string;
          /** The chat's URI. */
          chat: string;
          /** The request's id. */
          id: string;
          /** `chatInput`, `toolConfirmation`, `toolClientExecution`, `toolAuthentication` */
          kind: string;
      }
    /** It waits no more. */
    | {
          type: 'input_needed_removed';
          /** The session's URI. */
          session: string;
          /** The request's id. */
          id: string;
      }
    /** A client introduced itself. */
    | {
          type: 'client_connect';
          /** Its id. */
          client: string;
      }
    /** A connection ended. */
    | {
          type: 'client_disconnect';
          /** The client's id; `anonymous` when it never introduced itself. */
          client: string;
      }
    /** A connection said who it is. */
    | {
          type: 'authenticated';
          /** The client's id. */
          client: string;
          /** The resource it signed in to. */
          resource: string;
      }
    /** An automation started a run. */
    | {
          type: 'automation_fire';
          /** The automation's URI. */
          automation: string;
          /** The run's URI. */
          run: string;
      }
    /** A client wrote a resource. */
    | {
          type: 'resource_write';
          /** Its URI. */
          uri: string;
      }
    /** A terminal was opened. */
    | {
          type: 'terminal_open';
          /** Its URI. */
          terminal: string;
          /** Its working directory. */
          cwd: string;
      }
    /** The host accepts connections. */
    | {
          type: 'listening';
          /** What runs the host. */
          runtime: string;
          /** The address it listens on; `stdio` where that is its only connection. */
          host: string;
          /** The port it got; 0 over stdio. */
          port: number;
          /** Whether a connection needs a token or a sign-in. */
          guarded: boolean;
      }
    /** The host is about to close. */
    | {
          type: 'stopping';
      }
    /** A line went to the log. */
    | {
          type: 'log';
          /** The line. */
          line: string;
      };

// What the module exports at run time. The engine serves it: nothing is installed.

/** What a command's handler or a provider throws to tell its caller what is wrong. */
export class RpcError extends Error {
    /** `code` is JSON-RPC's or the protocol's; `data` holds facts a program acts on. */
    constructor(code: number, message: string, data?: unknown);
    readonly code: number;
    readonly data?: unknown;
}

/** A record store that keeps everything in memory, for tests. */
export function memoryRecords(): {
    collection(name: string, options?: CollectionOptions): Promise<MemoryCollection>;
};

/** A collection of `memoryRecords`. */
export interface MemoryCollection {
    /** The record of an id, or nothing. */
    get(id: string): Promise<JsonObject | undefined>;
    /** Every record. */
    list(): Promise<JsonObject[]>;
    /** The records whose top-level fields equal each field of `match`. */
    find(match: JsonObject): Promise<JsonObject[]>;
    /** Keeps a record, replacing what its id held. Refuses an id that is no slug. */
    put(record: JsonObject): Promise<void>;
    /** Forgets a record; `true` when there was one. */
    remove(id: string): Promise<boolean>;
    /** Calls back after each change; answers the function that stops it. */
    watch(onChange: (change: RecordChange) => void): () => void;
}

/** A policy: who may use what, and how much of it. */
export interface Policy {
    /** Unique in the whole store: the policy's address is `policy://<id>`. */
    id: string;
    /** Whom it holds for: `all`, `user:<id>`, `team:<id>` or `project:<team>:<project>`. */
    scope: string;
    /** What it is about. */
    kind: 'model' | 'agent' | 'computer';
    /** What it does. One matching `deny` is the whole answer. */
    effect: 'allow' | 'deny';
    /** What it is held against. Values of one type are alternatives; `*` stands for any run of characters. */
    match?: { model?: string[]; proxy?: string[]; agent?: string[]; computer?: string[] };
    /** Every one must have room; none is no limit. */
    limits?: PolicyLimit[];
    /** Kept, not enforced. */
    pool?: unknown;
    /** Kept, not enforced. */
    cap?: unknown;
    /** A timestamp, or a date that covers its whole day. */
    from?: string;
    /** A timestamp, or a date that covers its whole day. */
    until?: string;
    title?: string;
    description?: string;
}

/** How much of something a policy allows. */
export interface PolicyLimit {
    amount: number;
    /** Of a model `usd`, `tokens` or `calls`; of an agent `usd`, `tokens`, `turns` or `hours`; of a computer `hours` or `sessions`. */
    measure: 'usd' | 'tokens' | 'calls' | 'turns' | 'hours' | 'sessions';
    period: 'day' | 'week' | 'month' | 'total';
    pool: 'shared' | 'each';
}

/** The row a body is, its dates as instants; throws an `RpcError` (-32602) that names the wrong field. */
export function checkPolicy(body: unknown): Policy;

/** A policy store in one JSON file. */
export function filePolicies(options: { file: string }): {
    list(): Promise<Policy[]>;
    get(id: string): Promise<Policy | undefined>;
    put(policy: Policy): Promise<void>;
    remove(id: string): Promise<boolean>;
};

/** A tool as an endpoint serves it; one without `run` is run by a client. */
export interface ServedTool {
    definition: { name: string; title?: string; description?: string; inputSchema?: unknown };
    run?(input: unknown): Awaitable<unknown>;
}

/**
 * Endpoints that serve tools over MCP, for a plugin that runs its own listener or route. `origin` is read when an
 * endpoint opens; where it is nothing none can be opened.
 */
export function toolServers(about: {
    origin: string | (() => string | null | undefined);
    name: string;
    version: string;
}): {
    /** Opens an endpoint with a path and a token of its own. */
    open(options: {
        tools(): Awaitable<readonly ServedTool[]>;
        /** Runs a tool that has no `run`. */
        runClient?(name: string, input: unknown): Awaitable<unknown>;
        /** `notify` to be told of changes on the `GET` stream; `list`, where left out, to ask again. */
        toolsChanged?: 'notify' | 'list';
    }): { url: string; token: string; changed(): void; close(): void } | undefined;
    /** Answers the requests under `/ahp-mcp`; `undefined` for every other. */
    request(request: Request): Promise<Response | undefined>;
};

// The protocol's own types.

/**
 * Static capabilities an {@link AgentInfo} advertises. Modelled after MCP
 * capabilities: each field is opt-in and its presence (an empty object `{}`)
 * signals support, while absence means the feature is unsupported and the
 * corresponding client commands MUST NOT be used. Sub-fields carry
 * per-capability options.
 */
export interface AgentCapabilities {
    /**
     * The agent can host more than one concurrent chat per session. When absent,
     * clients MUST NOT call `createChat` to open chats beyond the default one the
     * session starts with. An empty object `{}` advertises multi-chat without
     * source-based creation; set {@link MultipleChatsCapability.fork} or
     * {@link MultipleChatsCapability.sideChat} to allow the corresponding
     * creation mode.
     */
    multipleChats?: MultipleChatsCapability;
    /**
     * The session's agent can be granted tool access to more than one working
     * directory. The directories are treated as equal peers except where the
     * agent advertises a protected primary-slot option (some backends pin or
     * replace their first directory as a process root).
     *
     * When absent, clients MUST NOT mutate a session's or chat's working-directory
     * set and MUST NOT set more than one entry in
     * {@link CreateSessionParams.workingDirectories}.
     */
    multipleWorkingDirectories?: MultipleWorkingDirectoriesCapability;
}

/**
 * A custom agent contributed by a plugin or directory.
 *
 * Mirrors the [Open Plugins agent](https://open-plugins.com/agent-builders/components/agents)
 * format: a markdown file with YAML frontmatter, where the body is the
 * agent's system prompt.
 */
export interface AgentCustomization {
    type: 'agent';
    /**
     * Session-unique opaque identifier. Used by every action that targets a
     * specific customization. Minted by whoever publishes the customization
     * (typically the agent host).
     */
    id: string;
    /**
     * Source URI for this customization. A plugin URL, a file URI, or a
     * directory URI.
     *
     * For declarations that live inside a larger file — e.g. an MCP
     * server declared inline in a `plugins.json` manifest — `uri` points
     * to the containing file and {@link CustomizationBase.range | `range`}
     * narrows it to the declaration's span.
     */
    uri: string;
    /** Human-readable name. */
    name: string;
    /** Icons for UI display. */
    icons?: Icon[];
    /**
     * Optional span within {@link CustomizationBase.uri | `uri`} when this
     * customization is a subset of a larger file (for example, one entry
     * in an inline `mcpServers` block of a `plugins.json` manifest).
     * Absent when the customization covers the whole resource.
     */
    range?: TextRange;
    /**
     * Additional provider-specific metadata for this customization.
     *
     * Mirrors the MCP `_meta` convention. Optional and opaque to the
     * protocol; producers and consumers agree on its contents
     * out-of-band.
     */
    _meta?: JsonObject;
    /**
     * Whether this child is individually enabled. Absent means enabled, so a
     * producer only needs to set it to surface a child that exists but is
     * turned off on its own.
     *
     * This flag is independent of the parent container's: the **effective**
     * enabled state of a plugin child is the plugin's derived enabled value and
     * `(child.enabled ?? true)`, so a disabled plugin disables every child
     * regardless of each child's own flag. A directory child instead uses the
     * directory's `enabled` value and its own flag.
     *
     * A child is turned on or off by id with
     * {@link SessionCustomizationToggledAction | `session/customizationToggled`}.
     */
    enabled?: boolean;
    /**
     * Short description of what the agent specializes in and when to
     * invoke it. Sourced from the agent file's frontmatter `description`.
     */
    description?: string;
    /**
     * Model the agent is pinned to, sourced from the agent file's
     * frontmatter `model`. Absent means the agent inherits the session's
     * default model.
     */
    model?: string;
    /**
     * Allowlist of tool names the agent is scoped to, sourced from the
     * agent file's frontmatter `tools`. A non-empty list restricts the
     * agent to exactly those tools. Absent — or an empty list — imposes no
     * restriction beyond the session default: the agent may use any
     * available tool. Producers express "no restriction" by omitting the
     * field rather than sending an empty array, so an empty list carries no
     * meaning distinct from absence.
     */
    tools?: string[];
    /**
     * When `true`, the agent will not auto-delegate to this custom agent
     * as a sub-agent; it can only be selected by the user. Absent or
     * `false` means the agent may delegate to it.
     */
    disableModelInvocation?: boolean;
    /**
     * When `true`, the user cannot select this custom agent (for example,
     * in a picker); it remains available for the agent to auto-delegate
     * to. Absent or `false` means the user may select it.
     */
    disableUserInvocation?: boolean;
}

export interface AgentInfo {
    /** Agent provider ID (e.g. `'copilot'`) */
    provider: string;
    /** Human-readable name */
    displayName: string;
    /** Description string */
    description: string;
    /** Available models for this agent */
    models: SessionModelInfo[];
    /**
     * Protected resources this agent requires authentication for.
     *
     * Each entry describes an OAuth 2.0 protected resource using
     * [RFC 9728](https://datatracker.ietf.org/doc/html/rfc9728) semantics.
     * Clients should obtain tokens from the declared `authorization_servers`
     * and push them via the `authenticate` command before creating sessions
     * with this agent.
     */
    protectedResources?: ProtectedResourceMetadata[];
    /**
     * Customizations associated with this agent.
     *
     * Either container customizations —
     * {@link PluginCustomization | `PluginCustomization`} entries the agent
     * bundles, plus {@link DirectoryCustomization | `DirectoryCustomization`}
     * entries it watches in any workspace it's used with — or top-level
     * {@link McpServerCustomization | `McpServerCustomization`} entries
     * the agent host declares directly. When a session is created with
     * this agent, these entries are augmented (e.g. directory URIs are
     * resolved against the workspace, children are parsed) and propagated
     * into the session's `customizations` list.
     */
    customizations?: Customization[];
    /**
     * Static capabilities the agent advertises about itself. Clients use these
     * to gate features (multi-chat, fork) instead of switching on the provider
     * id.
     */
    capabilities?: AgentCapabilities;
}

/**
 * A selected custom agent for a session.
 *
 * The `uri` identifies a specific custom agent (matching an
 * {@link AgentCustomization.uri | `AgentCustomization.uri`} exposed via
 * the session's effective customizations). Consumers resolve the agent's
 * display name by looking up `uri` in the session's customization tree.
 *
 * A message with no `agent` selected uses the provider's default behavior.
 */
export interface AgentSelection {
    /** Stable agent URI (matches an {@link AgentCustomization.uri}). */
    uri: string;
}

/**
 * The subset of MCP App
 * [`HostCapabilities`](https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/draft/apps.mdx)
 * an AHP host can derive from the upstream MCP server (and from AHP's own
 * forwarding plumbing). Advertised on
 * {@link McpServerCustomizationApps.capabilities} so clients can pass it
 * through into the `hostCapabilities` of the `ui/initialize` response
 * delivered to an MCP App View.
 *
 * Field names mirror the MCP Apps spec exactly, so the AHP-side producer
 * can pass them straight through into the `hostCapabilities` of the
 * `ui/initialize` response delivered to the View.
 *
 * Capabilities outside this set (`openLinks`, `downloadFile`, `sandbox`,
 * `experimental`) are decided locally by whichever AHP client renders the
 * View and are NOT part of this AHP-level advertisement — only the
 * server-derived subset is.
 *
 * An agent host MUST only advertise a capability when it actually accepts the
 * corresponding methods/notifications on the `mcp://` channel:
 *
 * - {@link serverTools}: host proxies `tools/list` and `tools/call` to
 *   the MCP server. When `listChanged` is `true`, the host also forwards
 *   `notifications/tools/list_changed`.
 * - {@link serverResources}: host proxies `resources/read`,
 *   `resources/list`, and `resources/templates/list` to the MCP server.
 *   When `listChanged` is `true`, the host also forwards
 *   `notifications/resources/list_changed`.
 * - {@link logging}: host accepts `notifications/message` log entries
 *   from the App and forwards them via `mcpNotification` (and forwards
 *   `logging/setLevel` calls to the server).
 * - {@link sampling}: host serves `sampling/createMessage` via
 *   `mcpMethodCall`. When `sampling.tools` is present, the host also
 *   accepts SEP-1577 `tools` / `toolChoice` / `tool_use` content blocks
 *   inside `CreateMessageRequest`.
 */
export interface AhpMcpUiHostCapabilities {
    /** Producer proxies the MCP `tools/*` methods to the upstream server. */
    serverTools?: unknown;
    /** Producer proxies the MCP `resources/*` methods to the upstream server. */
    serverResources?: unknown;
    /** Producer accepts `notifications/message` log entries from the App via `mcpNotification`. */
    logging?: JsonObject;
    /** Producer serves `sampling/createMessage` via `mcpMethodCall`. */
    sampling?: unknown;
}

/**
 * A conversation anchored to a specific file in a session, optionally scoped
 * to a chat and turn and narrowed to a range within that file.
 *
 * {@link origin} identifies the owning session and, when available, the chat
 * and turn that produced the file version. When {@link range} is omitted the
 * annotation is anchored to the entire file.
 *
 * Every annotation MUST contain at least one {@link AnnotationEntry}. An
 * {@link AnnotationsSetAction} that creates an annotation therefore carries
 * its mandatory first entry, and removing the last remaining entry collapses
 * the annotation via {@link AnnotationsRemovedAction} rather than leaving an
 * empty annotation behind.
 */
export interface Annotation {
    /**
     * Stable identifier within the annotations channel. Assigned by the client
     * that dispatches the creating {@link AnnotationsSetAction}.
     */
    id: string;
    /** Provenance of the content this annotation is anchored to. */
    origin: AnnotationOrigin;
    /** The file the annotation is anchored to. */
    resource: string;
    /**
     * Range within {@link resource} the annotation is anchored to. When
     * omitted the annotation is anchored to the entire file.
     */
    range?: TextRange;
    /**
     * Whether the annotation has been resolved. Newly created annotations are
     * always unresolved (`false`); a client marks an annotation resolved (or
     * re-opens it) by dispatching an {@link AnnotationsUpdatedAction} carrying
     * the updated flag (or an {@link AnnotationsSetAction} when replacing the
     * whole annotation).
     */
    resolved: boolean;
    /**
     * Entries in this annotation, in dispatch order (oldest first). MUST
     * contain at least one entry.
     */
    entries: AnnotationEntry[];
    /**
     * Producer-defined opaque metadata, surfaced to tooling but not
     * interpreted by the protocol.
     */
    _meta?: JsonObject;
}

/** A single entry within an {@link Annotation}. */
export interface AnnotationEntry {
    /**
     * Stable identifier within the enclosing annotation. Assigned by the client
     * that dispatches the {@link AnnotationsEntrySetAction} (or the enclosing
     * {@link AnnotationsSetAction}) introducing the entry.
     */
    id: string;
    /**
     * Entry body. A bare `string` is rendered as plain text; pass
     * `{ markdown: "…" }` to opt into Markdown rendering. See
     * {@link StringOrMarkdown}.
     */
    text: StringOrMarkdown;
    /**
     * Producer-defined opaque metadata, surfaced to tooling but not
     * interpreted by the protocol.
     */
    _meta?: JsonObject;
}

/** Provenance of the content an annotation is anchored to. */
export interface AnnotationOrigin {
    /** Owning session URI. */
    session: string;
    /** Owning chat URI, when the annotation is scoped to a chat. */
    chat?: string;
    /** Turn identifier within {@link chat}, when the annotation is scoped to a turn. */
    turnId?: string;
}

/**
 * Remove a single {@link AnnotationEntry} from an annotation without
 * collapsing the annotation itself. Used when more than one entry remains —
 * to remove the last entry a client dispatches {@link AnnotationsRemovedAction}
 * instead, since the protocol forbids empty annotations.
 *
 * If either {@link annotationId} or {@link entryId} does not match the
 * current state the action is a no-op.
 */
export interface AnnotationsEntryRemovedAction {
    type: 'annotations/entryRemoved';
    /** The {@link Annotation.id} the entry belongs to. */
    annotationId: string;
    /** The {@link AnnotationEntry.id} to remove. */
    entryId: string;
}

/**
 * Upsert an {@link AnnotationEntry} within an existing annotation — adds a
 * new entry, or replaces one identified by {@link AnnotationEntry.id}. The
 * dispatching client assigns the {@link AnnotationEntry.id} of a new entry.
 * If {@link annotationId} does not match any current annotation the action
 * is a no-op.
 */
export interface AnnotationsEntrySetAction {
    type: 'annotations/entrySet';
    /** The {@link Annotation.id} the entry belongs to. */
    annotationId: string;
    /** The new or replacement entry. */
    entry: AnnotationEntry;
}

/**
 * Remove an {@link Annotation} from the channel by its id.
 *
 * Dispatched to delete an entire annotation and every entry it contains.
 * Because the protocol forbids empty annotations, a client that wants to
 * remove the last remaining entry dispatches this action — collapsing the
 * annotation — rather than {@link AnnotationsEntryRemovedAction}.
 */
export interface AnnotationsRemovedAction {
    type: 'annotations/removed';
    /** The {@link Annotation.id} of the annotation to remove. */
    annotationId: string;
}

/**
 * Upsert an {@link Annotation} in the annotations channel — adds a new
 * annotation, or replaces an existing one identified by
 * {@link Annotation.id}.
 *
 * Dispatched by a client to create an annotation (together with its
 * mandatory first entry) or to re-anchor / resolve an existing one; the
 * dispatching client assigns the {@link Annotation.id} and the id of any
 * new entry. When replacing, the full annotation payload (including its
 * {@link Annotation.entries | entries} list) is substituted; producers
 * SHOULD prefer {@link AnnotationsEntrySetAction} for per-entry edits, and
 * {@link AnnotationsUpdatedAction} to resolve / re-anchor an existing
 * annotation, to keep wire updates small.
 */
export interface AnnotationsSetAction {
    type: 'annotations/set';
    /** The new or replacement annotation. MUST contain at least one entry. */
    annotation: Annotation;
}

/**
 * Lightweight per-session summary of the annotations channel, surfaced on
 * {@link SessionSummary.annotations} so badge UI can render annotation /
 * entry counts without subscribing to the channel itself.
 */
export interface AnnotationsSummary {
    /**
     * The subscribable annotations channel URI for the owning session
     * (typically `ahp-session:/<uuid>/annotations`). Surfaced explicitly even
     * though it is derivable from the session URI so badge UI does not need
     * to know the derivation rule.
     */
    resource: string;
    /** Total number of {@link Annotation} entries in the channel. */
    annotationCount: number;
    /** Total number of {@link AnnotationEntry} entries across every annotation. */
    entryCount: number;
}

/**
 * Partially update an existing {@link Annotation}'s own properties — a narrow
 * alternative to {@link AnnotationsSetAction} for the common case of resolving
 * / re-opening or re-anchoring an annotation without resending its
 * {@link Annotation.entries | entries}.
 *
 * Targets one annotation by its {@link annotationId}. Only the fields present
 * on the action are written; omitted fields leave the corresponding
 * {@link Annotation} property unchanged. The annotation's
 * {@link Annotation.entries | entries}, {@link Annotation.id | id}, and
 * {@link Annotation._meta | _meta} are never touched — dispatch
 * {@link AnnotationsSetAction} to replace those, to clear {@link range}
 * (re-anchor to the whole file), or {@link AnnotationsEntrySetAction} /
 * {@link AnnotationsEntryRemovedAction} to edit individual entries.
 *
 * If {@link annotationId} does not match any current annotation the action is
 * a no-op.
 */
export interface AnnotationsUpdatedAction {
    type: 'annotations/updated';
    /** The {@link Annotation.id} of the annotation to update. */
    annotationId: string;
    /** Replaces the annotation's provenance. Omit to leave it unchanged. */
    origin?: AnnotationOrigin;
    /**
     * Re-anchors the annotation to this file. Omit to leave the current
     * {@link Annotation.resource} unchanged.
     */
    resource?: string;
    /**
     * Narrows the annotation to this range within {@link resource}. Omit to
     * leave the current {@link Annotation.range} unchanged; this action cannot
     * clear an existing range — dispatch {@link AnnotationsSetAction} to
     * re-anchor to the whole file.
     */
    range?: TextRange;
    /**
     * Marks the annotation resolved (`true`) or re-opens it (`false`). Omit to
     * leave the current {@link Annotation.resolved} state unchanged.
     */
    resolved?: boolean;
}

/** Stops scheduling once a wall-clock date passes. */
export interface AutomationAfterDateCondition {
    kind: 'afterDate';
    /** ISO 8601 timestamp after which scheduling stops. */
    date: string;
}

/** Stops scheduling after a fixed number of scheduled runs. */
export interface AutomationAfterRunsCondition {
    kind: 'afterRuns';
    /** Positive-integer cap on scheduled runs. */
    max: number;
}

/**
 * Terminal lifecycle for a cancelled run.
 *
 * `startedAt` is absent when cancellation completed while the run was still
 * pending.
 */
export interface AutomationCancelledRunLifecycle {
    status: 'cancelled';
    /** Run creation timestamp in ISO 8601 format. */
    createdAt: string;
    /** First execution start timestamp in ISO 8601 format, when execution began. */
    startedAt?: string;
    /** Cancellation completion timestamp in ISO 8601 format. */
    completedAt: string;
}

/** Terminal lifecycle for a successfully completed run. */
export interface AutomationCompletedRunLifecycle {
    status: 'completed';
    /** Run creation timestamp in ISO 8601 format. */
    createdAt: string;
    /** First execution start timestamp in ISO 8601 format. */
    startedAt: string;
    /** Completion timestamp in ISO 8601 format. */
    completedAt: string;
    /** Optional aggregate model usage across all linked sessions. */
    usage?: UsageInfo;
}

/**
 * Ask the host to create a durable automation at a client-chosen resource.
 *
 * Clients may dispatch this action only when the host advertises its `create`
 * automation capability. {@link AutomationCreateRequestedAction.resource |
 * `resource`} MUST use the `ahp-automation:` scheme and MUST NOT already
 * identify an unrelated automation.
 *
 * This side-effect request leaves optimistic catalogue state unchanged. The
 * host validates trigger ids and configuration, normalizes event-trigger
 * titles and descriptions, captures any
 * {@link AutomationSessionTemplate.customizations | session customizations}
 * from the dispatching client, persists the definition, then publishes the
 * authoritative result with {@link AutomationSetAction | `automation/set`}.
 * Rejections leave the catalogue unchanged.
 */
export interface AutomationCreateRequestedAction {
    type: 'automation/createRequested';
    /** Client-chosen `ahp-automation:` URI that becomes {@link AutomationEntry.resource}. */
    resource: string;
    /** Complete initial {@link AutomationEntry.definition}. */
    definition: AutomationDefinition;
}

/**
 * Durable, client-editable definition of an automation.
 *
 * A definition combines the initial automation message, the session template
 * used for each run, and zero or more automatic triggers. Run history,
 * timestamps, and currently allowed operations live on
 * {@link AutomationEntry} rather than in the definition.
 */
export interface AutomationDefinition {
    /** Human-readable automation name. */
    title: string;
    /**
     * Initial message sent to every newly created run session. Its
     * {@link Message.origin} kind MUST be {@link MessageKind.Automation}.
     */
    message: Message;
    /** Template used to create fresh sessions for each run. */
    session: AutomationSessionTemplate;
    /**
     * Whether automatic triggers may create runs. Manual runs remain available
     * whenever {@link AutomationOperation.Run} is advertised.
     */
    enabled: boolean;
    /** Automatic triggers. An empty list means manual-only. */
    triggers: AutomationTrigger[];
    /**
     * Self-disable rules combined with logical OR: the host sets
     * {@link AutomationDefinition.enabled} to `false` when any condition is met.
     * Absent or empty means no automatic disable conditions. Each
     * {@link AutomationDisableConditionKind} may appear at most once; hosts MUST
     * reject create or update requests containing duplicate kinds.
     *
     * Only automatic (scheduled) runs are governed; manual runs via
     * {@link RunAutomationParams | runAutomation} are never blocked. For a
     * {@link AutomationAfterRunsCondition}, usage is tracked by the host-owned
     * {@link AutomationEntry.runCount}. Adding that kind when absent or
     * a disabled→enabled transition starts a fresh allowance. Clearing the
     * conditions does not re-enable a disabled automation. See the
     * {@link /guide/automations | Automations Guide}.
     */
    disableConditions?: AutomationDisableCondition[];
    /**
     * Opaque implementation-defined metadata. Clients MUST preserve unknown
     * entries when updating the definition.
     */
    _meta?: JsonObject;
}

/**
 * Partial replacement of editable {@link AutomationDefinition} fields.
 *
 * Omitted fields are unchanged. Supplied arrays and objects replace their
 * corresponding values in full; they are not merged recursively.
 */
export interface AutomationDefinitionPatch {
    /** Replacement {@link AutomationDefinition.title}. */
    title?: string;
    /** Replacement {@link AutomationDefinition.message}. */
    message?: Message;
    /**
     * Replacement {@link AutomationDefinition.session}. The host revalidates
     * affected event triggers when their discovery context changes, and
     * captures {@link AutomationSessionTemplate.customizations} entries that
     * are new or whose `uri` or `nonce` changed.
     */
    session?: AutomationSessionTemplate;
    /** Replacement {@link AutomationDefinition.enabled}. */
    enabled?: boolean;
    /**
     * Complete replacement {@link AutomationDefinition.triggers}. The host
     * validates event ids and normalizes event-trigger titles and descriptions.
     */
    triggers?: AutomationTrigger[];
    /**
     * Complete replacement {@link AutomationDefinition.disableConditions}.
     * Omit to leave unchanged; supply an empty array to remove all conditions.
     * Each kind may appear at most once; hosts MUST reject duplicate kinds.
     * Clearing conditions does not change {@link AutomationDefinition.enabled}.
     */
    disableConditions?: AutomationDisableCondition[];
    /** Complete replacement {@link AutomationDefinition._meta}. */
    _meta?: JsonObject;
}

/** Self-disable rule for an automation. */
export type AutomationDisableCondition = AutomationAfterRunsCondition | AutomationAfterDateCondition;

/**
 * Authoritative state of one automation in {@link AutomationState.entries}.
 *
 * The host owns trigger evaluation, run claims, run retention, and operation
 * availability. Clients render this state and submit actions or commands; they
 * never run a fallback scheduler for a host-owned definition.
 */
export interface AutomationEntry {
    /** Stable `ahp-automation:/<id>` resource identifier. */
    resource: string;
    /** Current durable definition. */
    definition: AutomationDefinition;
    /** Earliest schedule occurrence awaiting evaluation, as an ISO 8601 timestamp. It may be in the past while catch-up is pending. */
    nextRunAt?: string;
    /**
     * Host-owned count of scheduled runs consumed against the current
     * {@link AutomationAfterRunsCondition} allowance. Authoritative usage for the
     * **current** allowance, not a lifetime total: the host resets it to `0` when
     * a disabled→enabled transition starts a fresh allowance or a
     * {@link AutomationAfterRunsCondition} is added when none was present. It is NOT
     * reconstructed from {@link runs} (a bounded, prunable window). The host
     * increments it atomically when it admits a scheduled run, including runs
     * later cancelled or failed.
     *
     * Absent when {@link AutomationDefinition.disableConditions} contains no
     * {@link AutomationAfterRunsCondition}.
     */
    runCount?: number;
    /**
     * Newest-first retained run summaries. This is a bounded window; use
     * {@link FetchAutomationRunsParams | fetchAutomationRuns} when
     * {@link AutomationEntry.runsNextCursor} is present.
     */
    runs: AutomationRunSummary[];
    /** Opaque cursor passed as {@link FetchAutomationRunsParams.cursor} for the next older run-history page. */
    runsNextCursor?: string;
    /** Operations currently permitted for this automation. */
    operations: AutomationOperation[];
    /**
     * Host-owned copies of the plugins in
     * {@link AutomationSessionTemplate.customizations}, one per template entry
     * with the same `id`. Absent when the template has no customizations.
     *
     * Each copy's `uri` identifies the captured contents, which clients can
     * browse with `resourceRead`. `children` and `load` report what the host
     * found in that copy, independent of whether the originating client is
     * connected. `clientId` is absent because the copy no longer depends on a
     * client.
     *
     * Every run session receives these plugins in
     * {@link SessionState.customizations}, with the enablement from the
     * matching template entry.
     */
    customizations?: PluginCustomization[];
    /** Creation timestamp in ISO 8601 format. */
    createdAt: string;
    /** Last definition modification timestamp in ISO 8601 format. */
    modifiedAt: string;
    /** Opaque host-defined state metadata. */
    _meta?: JsonObject;
}

/**
 * Starts runs from events understood by the owning host.
 *
 * Event trigger types, events, and configuration are discovered through
 * {@link ListAutomationTriggerDefinitionsParams |
 * listAutomationTriggerDefinitions}. The saved trigger includes the matching
 * human-readable metadata so it remains displayable without repeating
 * discovery.
 */
export interface AutomationEventTrigger {
    kind: 'event';
    /**
     * Identifier unique and stable within this automation definition. Recorded in
     * {@link AutomationTriggeredRunOrigin.triggerId} when this trigger creates a
     * run.
     */
    id: string;
    /** Matches {@link AutomationTriggerDefinition.type}. */
    type: string;
    /** Host-normalized human-readable trigger type name. */
    title: string;
    /** Optional host-normalized explanation of the trigger source. */
    description?: string;
    /**
     * Selected events for this trigger type.
     *
     * Event ids carry the trigger semantics. Titles and descriptions are
     * last-known display metadata and do not indicate current availability.
     */
    events: AutomationTriggerEventDefinition[];
    /**
     * Values described by {@link AutomationTriggerDefinition.configSchema}.
     * Clients MUST preserve unknown entries when editing other fields.
     */
    config?: JsonObject;
}

/**
 * Terminal lifecycle for a run that ended with an error.
 *
 * `startedAt` is absent when failure occurred before execution began, such as
 * session-template validation or workspace preparation.
 */
export interface AutomationFailedRunLifecycle {
    status: 'failed';
    /** Run creation timestamp in ISO 8601 format. */
    createdAt: string;
    /** First execution start timestamp in ISO 8601 format, when execution began. */
    startedAt?: string;
    /** Failure timestamp in ISO 8601 format. */
    completedAt: string;
    /** Stable machine-readable and human-readable failure information. */
    error: ErrorInfo;
}

/** Origin recorded for a client-requested manual run. */
export interface AutomationManualRunOrigin {
    kind: 'manual';
}

/**
 * How a host handles schedule occurrences missed while automatic execution was
 * unavailable.
 */
export type AutomationMisfirePolicy = 'skip' | 'runOnce';

/**
 * Operations the host currently permits for an automation.
 *
 * The list on {@link AutomationEntry.operations} is authoritative and may
 * change over time. Clients MUST NOT infer permission from capabilities alone:
 * capabilities describe what the host implementation can support, while
 * operations describe what is allowed for this particular automation now.
 */
export type AutomationOperation = 'update' | 'remove' | 'run';

/** A durable run exists but has not begun external execution. */
export interface AutomationPendingRunLifecycle {
    status: 'pending';
    /** Run creation timestamp in ISO 8601 format. */
    createdAt: string;
}

/**
 * Remove one automation from {@link AutomationState.entries}.
 *
 * Clients may dispatch this action only while the target advertises
 * {@link AutomationOperation.Remove}. The host revalidates that operation
 * before permanently deleting the automation. A rejected action leaves the
 * authoritative catalogue and durable definition unchanged.
 *
 * Removing an unknown resource is a no-op.
 */
export interface AutomationRemovedAction {
    type: 'automation/removed';
    /** {@link AutomationEntry.resource} to remove. */
    resource: string;
}

/**
 * Ask the host to cancel this run.
 *
 * This is the only client-dispatchable automation-run action. It is a
 * side-effect request and deliberately leaves optimistic state unchanged. The
 * client may dispatch it only when the host advertises its `runCancellation`
 * capability and the current lifecycle is `pending` or `running`. The host
 * revalidates that the run is non-terminal. The authoritative outcome arrives
 * later through
 * {@link AutomationRunLifecycleChangedAction}: cancellation may transition to
 * `cancelled`, or the run may complete or fail before cancellation takes
 * effect.
 */
export interface AutomationRunCancelRequestedAction {
    type: 'automationRun/cancelRequested';
}

/** Lifecycle of an automation run. */
export type AutomationRunLifecycle =
    | AutomationPendingRunLifecycle
    | AutomationRunningRunLifecycle
    | AutomationCompletedRunLifecycle
    | AutomationFailedRunLifecycle
    | AutomationCancelledRunLifecycle;

/**
 * Replace the run lifecycle.
 *
 * The host dispatches this action for every lifecycle transition.
 */
export interface AutomationRunLifecycleChangedAction {
    type: 'automationRun/lifecycleChanged';
    /** Complete replacement {@link AutomationRunState.lifecycle}. */
    lifecycle: AutomationRunLifecycle;
}

/** Provenance describing how an automation run was created. */
export type AutomationRunOrigin = AutomationManualRunOrigin | AutomationTriggeredRunOrigin;

/** Select or clear the session clients should open first for this run. */
export interface AutomationRunPrimarySessionChangedAction {
    type: 'automationRun/primarySessionChanged';
    /** New {@link AutomationRunState.primarySession}, or omitted to clear the selection. */
    primarySession?: string;
}

/**
 * Remove a linked session from the run.
 *
 * Removing the current primary session also clears
 * {@link AutomationRunState.primarySession}. An unknown URI is a no-op.
 */
export interface AutomationRunSessionRemovedAction {
    type: 'automationRun/sessionRemoved';
    /** Entry in {@link AutomationRunState.sessions} to remove. */
    session: string;
}

/**
 * Add a session to {@link AutomationRunState.sessions}.
 *
 * Session URIs are unique. Setting an existing URI is a no-op.
 */
export interface AutomationRunSessionSetAction {
    type: 'automationRun/sessionSet';
    /** Session URI to append to {@link AutomationRunState.sessions} when not already linked. */
    session: string;
}

/**
 * Authoritative state of one subscribed `ahp-automation-run:` resource.
 *
 * The run channel owns task-level lifecycle, provenance, and linked-session
 * membership. Linked session and chat channels remain authoritative for
 * transcripts, tools, interaction requirements, changesets, and per-session
 * lifecycle.
 */
export interface AutomationRunState {
    /** URI of this automation-run channel. */
    resource: string;
    /** Owning `ahp-automation:` URI matching {@link AutomationEntry.resource}. */
    automation: string;
    /** Immutable provenance describing how this run was created. */
    origin: AutomationRunOrigin;
    /** Current or terminal lifecycle. */
    lifecycle: AutomationRunLifecycle;
    /**
     * Ordered, unique session URIs belonging to this run, each matching
     * {@link SessionState.resource}. Entries may represent retries, parallel
     * workers, or delegated attempts.
     */
    sessions: string[];
    /** Member of {@link AutomationRunState.sessions} that the host recommends opening first. */
    primarySession?: string;
    /** Opaque host-defined run metadata. */
    _meta?: JsonObject;
}

/**
 * Lightweight projection of a run retained in its automation's history.
 *
 * A summary contains enough information to render run history without
 * subscribing to every `ahp-automation-run:` resource.
 */
export interface AutomationRunSummary {
    /** Subscribable `ahp-automation-run:` URI matching {@link AutomationRunState.resource}. */
    resource: string;
    /** Owning `ahp-automation:` URI matching {@link AutomationRunState.automation}. */
    automation: string;
    /** Immutable provenance matching {@link AutomationRunState.origin}. */
    origin: AutomationRunOrigin;
    /** Current or terminal lifecycle snapshot matching {@link AutomationRunState.lifecycle}. */
    lifecycle: AutomationRunLifecycle;
    /** Session matching {@link AutomationRunState.primarySession}, when selected. */
    primarySession?: string;
    /** Number of entries in {@link AutomationRunState.sessions}. */
    sessionCount: number;
    /** Opaque host-defined summary metadata. */
    _meta?: JsonObject;
}

/**
 * The run is executing linked sessions or awaiting interaction on them.
 *
 * Linked {@link SessionState.status} and {@link SessionState.inputNeeded}
 * remain authoritative for whether user attention or client-side work is
 * required.
 */
export interface AutomationRunningRunLifecycle {
    status: 'running';
    /** Run creation timestamp in ISO 8601 format. */
    createdAt: string;
    /** First execution start timestamp in ISO 8601 format. */
    startedAt: string;
}

/**
 * A portable recurring schedule evaluated in a named time zone.
 *
 * The expression uses exactly five whitespace-separated fields, in this
 * order:
 *
 * | Field | Values |
 * | --- | --- |
 * | minute | `0`–`59` |
 * | hour | `0`–`23` |
 * | day of month | `1`–`31` |
 * | month | `1`–`12` or `JAN`–`DEC` |
 * | day of week | `0`–`7` or `SUN`–`SAT`; both `0` and `7` mean Sunday |
 *
 * Month and weekday names are ASCII and case-insensitive. Each field accepts
 * `*`, a single value, an inclusive range (`1-5`), a comma-separated list of
 * values or ranges (`1,3,8-10`), or a step applied to `*` or a range (for
 * example, &#42;/15 or `1-30/2`). A step MUST be a positive integer. AHP does
 * not support seconds, years, macros such as `@daily`, or Quartz extensions
 * such as `?`, `L`, `W`, and `#`.
 *
 * Minute, hour, and month must all match. When both day-of-month and
 * day-of-week are restricted (not `*`), an occurrence matches when either day
 * field matches, following Unix cron semantics.
 */
export interface AutomationSchedule {
    /** Five-field AHP cron expression described by {@link AutomationSchedule}. */
    expression: string;
    /**
     * IANA Time Zone Database identifier used to interpret the expression, for
     * example `"UTC"` or `"Europe/Berlin"`.
     */
    timeZone: string;
}

/** Starts runs from a recurring cron schedule evaluated by the host. */
export interface AutomationScheduleTrigger {
    kind: 'schedule';
    /**
     * Identifier unique and stable within this automation definition. Recorded in
     * {@link AutomationTriggeredRunOrigin.triggerId} when this trigger creates a
     * run.
     */
    id: string;
    /** Recurrence and time zone evaluated by the host. */
    schedule: AutomationSchedule;
    /**
     * Policy for missed occurrences. Omission is equivalent to
     * {@link AutomationMisfirePolicy.RunOnce}.
     */
    misfirePolicy?: AutomationMisfirePolicy;
}

/**
 * Provenance recorded on a session created for an automation run.
 *
 * The links let clients navigate from an ordinary session to the task-level
 * run and its durable definition. The session channel remains authoritative
 * for this session's transcript, tools, confirmations, and changes.
 */
export interface AutomationSessionOrigin {
    kind: 'automation';
    /** Owning {@link AutomationEntry.resource}. */
    automation: string;
    /** Owning {@link AutomationRunState.resource}. */
    run: string;
}

/**
 * Template from which the host creates a fresh session for each automation run.
 *
 * The host revalidates every selection when the run starts. Definitions never
 * carry credentials, confirmation decisions, or durable permission grants.
 */
export interface AutomationSessionTemplate {
    /** Provider id matching {@link AgentInfo.provider}. Omit to use the host's default provider. */
    provider?: string;
    /**
     * Optional model selection resolved when a run starts. Its
     * {@link ModelSelection.id} matches a {@link SessionModelInfo.id} advertised
     * by the selected provider.
     */
    model?: ModelSelection;
    /** Optional custom agent selection identified by {@link AgentSelection.uri}. */
    agent?: AgentSelection;
    /**
     * Ordered working-directory URIs for each created session, equivalent to
     * {@link CreateSessionParams.workingDirectories}. Absence means a
     * workspace-less session.
     */
    workingDirectories?: string[];
    /**
     * Session configuration values equivalent to
     * {@link CreateSessionParams.config}, normally obtained from
     * {@link ResolveSessionConfigResult.values}.
     */
    config?: JsonObject;
    /**
     * Client plugins to make available in every run session, in the same
     * published shape as
     * {@link SessionActiveClient.customizations | `activeClients[].customizations`}.
     * Entries are keyed by `id`.
     *
     * Runs usually start when no client is connected, so the host does not
     * resolve these URIs at run time. Instead, when it accepts a
     * {@link AutomationCreateRequestedAction | `automation/createRequested`} or
     * {@link AutomationUpdateRequestedAction | `automation/updateRequested`}
     * that adds an entry or changes an entry's `uri` or `nonce`, the host
     * captures a host-owned copy of the plugin. For client-served URIs such as
     * `virtual://…`, it reads the contents from the dispatching client with
     * server→client `resource*` requests. If a capture fails, the host rejects
     * the whole action. Entries whose `id`, `uri`, and `nonce` are unchanged keep
     * their existing copy, so any client can re-submit a template it received
     * without being able to serve the plugin itself. The resulting copies are
     * reported in {@link AutomationEntry.customizations}.
     *
     * The host MAY share one stored copy between entries with equal `uri` and
     * `nonce`, including across automations; this is not observable to clients.
     *
     * Clients MUST NOT set this field unless the host advertises
     * {@link AutomationCapabilities.customizations}.
     */
    customizations?: ClientPluginCustomization[];
}

/**
 * Add or replace one full automation state in
 * {@link AutomationState.entries}.
 *
 * Existing entries are matched by {@link AutomationEntry.resource} and
 * replaced in place. A previously unseen resource is appended.
 */
export interface AutomationSetAction {
    type: 'automation/set';
    /** Full new or replacement automation state. */
    automation: AutomationEntry;
}

/** Automatic trigger for an automation. */
export type AutomationTrigger = AutomationScheduleTrigger | AutomationEventTrigger;

/**
 * Describes one host-defined event trigger type available for a prospective
 * automation session template.
 *
 * Trigger definitions are discovery metadata, not durable automation state.
 * Hosts may return different definitions for different providers, working
 * directories, or session configuration.
 */
export interface AutomationTriggerDefinition {
    /** Stable type id stored in {@link AutomationEventTrigger.type}. */
    type: string;
    /** Human-readable trigger type name. */
    title: string;
    /** Optional longer explanation of the trigger source. */
    description?: string;
    /** Events available for selection. Saved triggers retain their selected event descriptors. */
    events: AutomationTriggerEventDefinition[];
    /** Optional schema for {@link AutomationEventTrigger.config}. */
    configSchema?: ConfigSchema;
}

/** Describes one host-defined trigger event. */
export interface AutomationTriggerEventDefinition {
    /** Stable event id. */
    id: string;
    /** Human-readable event name. */
    title: string;
    /** Optional longer explanation of when this event fires. */
    description?: string;
}

/** Origin recorded for a run created by one of the automation's triggers. */
export interface AutomationTriggeredRunOrigin {
    kind: 'trigger';
    /**
     * Matches the stable {@link AutomationScheduleTrigger.id} or
     * {@link AutomationEventTrigger.id} in the definition.
     */
    triggerId: string;
    /**
     * Intended schedule occurrence as an ISO 8601 timestamp. Present for
     * schedule triggers and normally absent for event triggers.
     */
    scheduledFor?: string;
    /**
     * `true` when this is a catch-up run created by
     * {@link AutomationMisfirePolicy.RunOnce}.
     */
    catchUp?: boolean;
    /**
     * Host-defined, non-secret event provenance suitable for display or audit.
     * This is descriptive context, not an input that clients replay.
     */
    event?: JsonObject;
}

/**
 * Ask the host to update editable fields of an existing automation.
 *
 * Clients may dispatch this action only while the target advertises
 * {@link AutomationOperation.Update}. The host revalidates that operation and
 * the client's authorization.
 *
 * This side-effect request leaves optimistic catalogue state unchanged. The
 * host applies accepted patches to its current authoritative definition in
 * action order, revalidates and normalizes affected event triggers, then
 * publishes the result with
 * {@link AutomationSetAction | `automation/set`}. Omitted fields remain
 * unchanged; when accepted actions replace the same field, the later action in
 * server order wins.
 */
export interface AutomationUpdateRequestedAction {
    type: 'automation/updateRequested';
    /** Target {@link AutomationEntry.resource}. */
    resource: string;
    /** Editable {@link AutomationDefinition} fields to replace. */
    changes: AutomationDefinitionPatch;
}

/**
 * A shell command continuing outside its initiating tool call. Covers shells
 * tied to the agent's lifetime (attached) and shells that outlive it
 * (detached). Whether a shell is attached is provider-specific and goes in its
 * `_meta`.
 */
export interface BackgroundShellWork {
    kind: 'shell';
    /**
     * Identifier of this entry, unique within the owning chat across all kinds.
     * The host derives it however it likes (for example from the kind plus the
     * agent's own task id); consumers MUST treat it as opaque. It is the key for
     * the `chat/backgroundWorkSet` / `chat/backgroundWorkRemoved` upsert
     * convention.
     */
    id: string;
    /** Human-readable label, such as the command's purpose or the subagent's name. */
    label: string;
    /** ISO 8601 timestamp when the work started. */
    startedAt: string;
    /** Provider-specific metadata. */
    _meta?: JsonObject;
    /** Command line, displayed as plain text. */
    command: string;
    /**
     * Terminal carrying this shell's output. Hosts SHOULD set this whenever they
     * can show that output. Clients open it like
     * {@link ToolResultTerminalContent.resource}; `isPty` on its
     * {@link TerminalState} says whether the output is plain text.
     */
    terminal?: string;
}

/** A subagent running in the background. Its own state lives in its chat. */
export interface BackgroundSubagentWork {
    kind: 'subagent';
    /**
     * Identifier of this entry, unique within the owning chat across all kinds.
     * The host derives it however it likes (for example from the kind plus the
     * agent's own task id); consumers MUST treat it as opaque. It is the key for
     * the `chat/backgroundWorkSet` / `chat/backgroundWorkRemoved` upsert
     * convention.
     */
    id: string;
    /** Human-readable label, such as the command's purpose or the subagent's name. */
    label: string;
    /** ISO 8601 timestamp when the work started. */
    startedAt: string;
    /** Provider-specific metadata. */
    _meta?: JsonObject;
    /**
     * The subagent's chat: the same chat the spawning tool call's
     * {@link ToolResultSubagentContent.resource} points to.
     */
    chat: string;
}

/** Work that keeps running after the tool call that started it returns and will resume the owning chat when it finishes. */
export type BackgroundWork = BackgroundShellWork | BackgroundSubagentWork;

/**
 * Stable reference to a subscribable canvas channel.
 *
 * Chat state intentionally carries only this reference so the experimental
 * canvas presentation model can evolve without changing the stable chat
 * channel shape.
 */
export interface CanvasReference {
    /** Canvas channel URI. Subscribe to this resource for the full state. */
    resource: string;
}

/**
 * Full state for one live canvas, returned when a client subscribes to its
 * `ahp-canvas:` URI.
 *
 * The client already knows the subscribed resource, so the state does not
 * redundantly carry its channel URI.
 */
export interface CanvasState {
    /** Stable caller-supplied instance identifier. */
    instanceId: string;
    /** Owning extension/provider identifier. */
    extensionId: string;
    /** Owning extension display name, when available. */
    extensionName?: string;
    /** Provider-local canvas type identifier. */
    canvasId: string;
    /** Provider-supplied title, when available. */
    title?: string;
    /** Provider-supplied status text, when available. */
    status?: string;
    /**
     * Current absolute HTTP(S) source URL; absent when the live source is unavailable.
     * Hosts MUST clear this field when the provider becomes unavailable.
     *
     * Source URLs MUST be redacted from diagnostic logs and MUST NOT be reused
     * from persisted state after a provider or host restart.
     */
    url?: string;
}

/**
 * The presentation state for this canvas changed.
 *
 * Replaces the subscribed canvas channel state entirely. Full-replacement
 * semantics intentionally keep this early-development channel free to evolve
 * without expanding the stable chat action surface.
 */
export interface CanvasStateChangedAction {
    type: 'canvas/stateChanged';
    /** New authoritative canvas state. */
    canvas: CanvasState;
}

/**
 * Aggregate counts describing the file changes associated with a session or
 * chat.
 *
 * All fields are optional so servers can populate only the metrics they
 * cheaply have available.
 */
export interface ChangesSummary {
    /** Total number of inserted lines across all changed files. */
    additions?: number;
    /** Total number of deleted lines across all changed files. */
    deletions?: number;
    /** Number of files that have changes. */
    files?: number;
}

/**
 * Catalogue entry describing one changeset the server can produce for a
 * session or chat.
 *
 * Catalogue entries are intentionally lightweight — just enough to render a
 * chip or list row without subscribing. Full per-changeset detail
 * ({@link ChangesetState}) lives on the subscribable URI obtained by
 * expanding {@link uriTemplate}.
 */
export interface Changeset {
    /** Human-readable label, e.g. `"Uncommitted Changes"`. */
    label: string;
    /**
     * RFC 6570 URI template. Clients parse the variables directly out of the
     * template using the standard `{name}` syntax — they are not redeclared
     * here.
     *
     * Only the following template shapes are defined by this protocol; any
     * other variable name MUST be ignored by clients (there is no
     * protocol-defined way to obtain values for unknown variables):
     *
     * | Variables in template                       | Meaning                                                                              |
     * | ------------------------------------------- | ------------------------------------------------------------------------------------ |
     * | _(none)_                                    | A static changeset scoped to the advertising session or chat. The template is itself a subscribable URI. |
     * | `{turnId}`                                  | Per-turn slice. Expand with a `Turn.id` from the advertising chat or session.        |
     * | `{originalTurnId}` and `{modifiedTurnId}`   | Diff between two turns. Both variables MUST be present.                              |
     *
     * Future protocol versions MAY add new well-known variables.
     */
    uriTemplate: string;
    /** Optional longer description. */
    description?: string;
    /**
     * Advisory hint describing what kind of changeset this is, so clients can
     * group, sort, or render an appropriate icon without parsing
     * {@link uriTemplate}. Recognized values include:
     *
     * - `'session'`: a static, session-wide changeset covering all changes the
     *   agent has produced in this session.
     * - `'branch'`: changes relative to a base branch (e.g. a feature branch
     *   diffed against `main`).
     * - `'uncommitted'`: the workspace's current uncommitted changes.
     * - `'turn'`: changes produced by a single turn. Typically paired with a
     *   `{turnId}` variable in {@link uriTemplate}.
     * - `'compare-turns'`: a diff between two turns. Typically paired with
     *   `{originalTurnId}` and `{modifiedTurnId}` variables in
     *   {@link uriTemplate}.
     *
     * Implementations MAY provide additional values; clients SHOULD fall back
     * to a reasonable default when an unknown value is encountered.
     */
    changeKind: string;
    /**
     * Optional capability declarations for this changeset. Absent (or an empty
     * object) means the changeset advertises no optional capabilities.
     *
     * Because the catalogue entry is delivered up-front on the advertising
     * session or chat's changeset list, clients can decide whether to surface
     * capability-gated UI (such as review checkboxes) without first subscribing
     * to the changeset URI. Mirrors the presence-flag convention of
     * `ClientCapabilities`.
     */
    capabilities?: ChangesetCapabilities;
}

/**
 * Optional capabilities a changeset advertises on its catalogue
 * {@link Changeset} entry.
 *
 * Each field is a presence flag: an empty object `{}` means "supported",
 * absence means "not supported". Sub-fields on individual capabilities are
 * reserved for future per-capability options.
 */
export interface ChangesetCapabilities {
    /**
     * The changeset supports the per-file **review** workflow. When declared,
     * clients MAY surface a GitHub-style "Viewed" toggle per file and dispatch
     * {@link ChangesetFilesReviewChangedAction | `changeset/filesReviewChanged`} to
     * set each file's {@link ChangesetFile.reviewed} flag. Clients that omit
     * handling MUST treat the changeset as non-reviewable.
     */
    review?: JsonObject;
}

/**
 * Drop every file from the changeset.
 *
 * Two cases use this:
 * 1. The underlying source moved (branch switched, fork point invalidated,
 *    …) and the server is recomputing from scratch — subsequent
 *    {@link ChangesetFileSetAction} entries will repopulate it.
 * 2. The owning session has ended and the URI is becoming
 *    un-subscribable — the server will unsubscribe all clients shortly
 *    after dispatching this action.
 *
 * Clients SHOULD release any references on receipt and SHOULD NOT
 * distinguish the two cases from the action alone — instead, react to
 * the corresponding session-level lifecycle signal (e.g.
 * `root/sessionRemoved`) for the "going away" case.
 */
export interface ChangesetClearedAction {
    type: 'changeset/cleared';
}

/**
 * The changeset's full content changed. Full replacement semantics: `files`
 * replaces the previous file list, and `operations`, when present, replaces
 * the previous operation list.
 *
 * Producers SHOULD use this action for initial snapshots and bulk refreshes;
 * use {@link ChangesetFileSetAction}, {@link ChangesetFileRemovedAction}, and
 * {@link ChangesetOperationsChangedAction} for incremental updates.
 */
export interface ChangesetContentChangedAction {
    type: 'changeset/contentChanged';
    /** Full replacement file list. */
    files: ChangesetFile[];
    /** Full replacement operation list. Omit when operations are unchanged. */
    operations?: ChangesetOperation[];
}

/** One file entry within a {@link ChangesetState}. */
export interface ChangesetFile {
    /**
     * Stable identifier within the changeset. Typically `after.uri`
     * (or `before.uri` for deletions).
     */
    id: string;
    /**
     * Reuses the existing {@link FileEdit} shape. Clients derive line
     * additions, deletions, and rename/create/delete semantics from this.
     */
    edit: FileEdit;
    /**
     * Whether a reviewer has marked this file as reviewed (the GitHub-style
     * "Viewed" checkbox). Absent is equivalent to `false` — clients MUST treat
     * a missing value as not-yet-reviewed.
     *
     * Requires the changeset to advertise {@link ChangesetCapabilities.review}.
     * Clients toggle it by dispatching
     * {@link ChangesetFilesReviewChangedAction | `changeset/filesReviewChanged`};
     * the server MAY also originate it (e.g. an agent self-reviewing its own
     * output).
     *
     * There is no content version in the protocol, so review is **not** reset
     * automatically when a file's contents change under a stable id. The server,
     * which is the authority on what changed, resets review explicitly — either
     * by re-emitting the file (via {@link ChangesetFileSetAction} or
     * {@link ChangesetContentChangedAction}) without `reviewed: true`, or by
     * dispatching `changeset/filesReviewChanged` with `reviewed: false`.
     */
    reviewed?: boolean;
    /**
     * Server-defined opaque metadata, surfaced to operations and tooling
     * but not interpreted by the protocol.
     */
    _meta?: JsonObject;
}

/**
 * Remove a {@link ChangesetFile} from the changeset by its id.
 *
 * Typically dispatched when a file is reverted, staged out, or otherwise
 * no longer in scope (e.g. a renamed file is replaced by a new entry).
 */
export interface ChangesetFileRemovedAction {
    type: 'changeset/fileRemoved';
    /** The {@link ChangesetFile.id} of the file to remove. */
    fileId: string;
}

/**
 * Upsert a {@link ChangesetFile} in the changeset — adds a new entry, or
 * replaces an existing one identified by {@link ChangesetFile.id}.
 */
export interface ChangesetFileSetAction {
    type: 'changeset/fileSet';
    /** The new or replacement file entry. */
    file: ChangesetFile;
}

/**
 * Set the {@link ChangesetFile.reviewed} flag for one or more files — the
 * GitHub-style "Viewed" toggle, applied in a single batch.
 *
 * Targets files by their {@link ChangesetFile.id}. Ids in {@link files} that
 * do not match a file currently present in the changeset are ignored; if none
 * match, the action is a no-op. Only the {@link ChangesetFile.reviewed} field
 * of each matched file is affected; the files' {@link ChangesetFile.edit | edit}
 * and {@link ChangesetFile._meta | _meta} are left untouched.
 *
 * Only meaningful on a changeset that advertises
 * {@link ChangesetCapabilities.review}. Unlike every other `changeset/*` action
 * this one is **client-dispatchable**: a reviewer toggles review state directly,
 * applying it optimistically through the write-ahead reducer and letting the
 * server echo it back on the normal `action` envelope stream. The server MAY
 * also originate it (e.g. an agent marking its own output reviewed).
 *
 * There is no protocol-level content version, so review is not reset
 * automatically when a file's contents change under a stable id. The server,
 * which is the authority on what changed, resets review explicitly — either by
 * re-emitting the file without `reviewed: true`, or by dispatching this action
 * with `reviewed: false`.
 */
export interface ChangesetFilesReviewChangedAction {
    type: 'changeset/filesReviewChanged';
    /** The {@link ChangesetFile.id | ids} of the files whose review state changed. */
    files: string[];
    /** New review state applied to every listed file: `true` once reviewed, `false` to clear it. */
    reviewed: boolean;
}

/**
 * A server-declared invokable verb the client can run against a
 * changeset, a file, or a range — `"stage"`, `"revert"`, `"create-pr"`,
 * and so on.
 *
 * The term "operation" is used deliberately to avoid colliding with the
 * protocol-level [Actions](/guide/actions) that mutate state.
 */
export interface ChangesetOperation {
    /** Stable identifier, unique within this changeset. */
    id: string;
    /** Human-readable button/menu label. */
    label: string;
    /** Optional longer description shown on hover or in tooltips. */
    description?: string;
    /** Where this operation can be invoked. */
    scopes: ChangesetOperationScope[];
    /**
     * Optional confirmation prompt to show before invoking. When present,
     * the client MUST display this message to the user (typically in a
     * confirmation dialog) and only invoke the operation after the user
     * accepts. The presence of this field also signals that the operation
     * is destructive — clients SHOULD style the affirmative button
     * accordingly (e.g. with a warning colour).
     */
    confirmation?: StringOrMarkdown;
    /** Optional generic icon hint, e.g. `"check"`, `"trash"`. */
    icon?: string;
    /** Optional group identifier, used to group related operations together. */
    group?: string;
    /**
     * Current execution status. The server sets
     * {@link ChangesetOperationStatus.Running | Running} while an invocation
     * is in flight, {@link ChangesetOperationStatus.Error | Error} when the
     * most recent invocation failed, and
     * {@link ChangesetOperationStatus.Idle | Idle} otherwise.
     *
     * Clients SHOULD reflect this state in the UI — e.g. disabling the
     * control or showing a spinner while `Running`, and surfacing
     * {@link error} while `Error`.
     */
    status: ChangesetOperationStatus;
    /**
     * Cause of failure. Present iff
     * `status === ChangesetOperationStatus.Error`; otherwise omitted.
     */
    error?: ErrorInfo;
}

/**
 * Optional follow-up surfaced by the server after an operation completes —
 * a {@link ContentRef} the client can fetch and display.
 *
 * Set `external` to `true` to open the content in the user's preferred
 * external handler (e.g. browser); otherwise the client is expected to
 * surface it inline.
 */
export interface ChangesetOperationFollowUp {
    content: ContentRef;
    /** When `true`, open in an external handler rather than inline. */
    external?: boolean;
}

/** Where a {@link ChangesetOperation} can be invoked. */
export type ChangesetOperationScope = 'changeset' | 'resource' | 'range';

/**
 * Execution lifecycle of a {@link ChangesetOperation}.
 *
 * An operation is invoked imperatively via `invokeChangesetOperation`, but
 * its progress and outcome are reflected back into changeset state so that
 * every subscriber observes a consistent view (e.g. a spinner on a "Create
 * Pull Request" button, or an inline error after a failed "revert").
 */
export type ChangesetOperationStatus = 'idle' | 'running' | 'error' | 'disabled';

/**
 * The {@link ChangesetOperation.status} for a single operation transitioned
 * (e.g. `idle → running → idle`, or `running → error`). The error payload
 * is set together with `status` whenever it transitions to
 * {@link ChangesetOperationStatus.Error | Error}, and cleared on any other
 * transition.
 *
 * Targets one operation by its {@link ChangesetOperation.id}. If no
 * operation with that id is currently present in the changeset, the action
 * is a no-op. Use {@link ChangesetOperationsChangedAction} to add, remove,
 * or otherwise replace the operation list itself.
 */
export interface ChangesetOperationStatusChangedAction {
    type: 'changeset/operationStatusChanged';
    /** The {@link ChangesetOperation.id} whose status changed. */
    operationId: string;
    /** New execution status. */
    status: ChangesetOperationStatus;
    /** Cause when `status === ChangesetOperationStatus.Error`; otherwise omitted. */
    error?: ErrorInfo;
}

/** Identifies the file or range a `ChangesetOperation` should act on. */
export type ChangesetOperationTarget =
    | { kind: 'resource'; resource: string; side?: string }
    | { kind: 'range'; resource: string; side?: string; range: TextRange };

/**
 * The set of operations available on this changeset changed. Full
 * replacement semantics: `operations` replaces the previous list (or
 * removes it entirely when `operations` is `undefined`).
 */
export interface ChangesetOperationsChangedAction {
    type: 'changeset/operationsChanged';
    /** Updated operation list. Pass `undefined` to clear all operations. */
    operations?: ChangesetOperation[];
}

/** Computation lifecycle of a {@link ChangesetState}. */
export type ChangesetStatus = 'computing' | 'recomputing' | 'ready' | 'error';

/**
 * The {@link ChangesetState.status} for this changeset transitioned (e.g.
 * `computing → ready` or `recomputing → ready`). The error payload is set
 * together with `status` whenever it transitions to
 * {@link ChangesetStatus.Error | Error}.
 */
export interface ChangesetStatusChangedAction {
    type: 'changeset/statusChanged';
    /** New computation lifecycle status. */
    status: ChangesetStatus;
    /** Cause when `status === ChangesetStatus.Error`; otherwise omitted. */
    error?: ErrorInfo;
}

/**
 * The activity description of this chat changed.
 *
 * Dispatched by the server to indicate what the chat is currently doing
 * (e.g. running a tool, thinking). Clear activity by omitting it or setting it
 * to `undefined`.
 * Producers SHOULD also update the parent session's chat catalog with
 * `session/chatUpdated` so `ChatSummary.activity` stays in sync.
 */
export interface ChatActivityChangedAction {
    type: 'chat/activityChanged';
    /** Human-readable description of current activity; omit or set `undefined` to clear */
    activity?: string;
}

/** Removes finished or no-longer-tracked background work; unknown IDs are a no-op. */
export interface ChatBackgroundWorkRemovedAction {
    type: 'chat/backgroundWorkRemoved';
    /** The {@link BackgroundWorkBase.id | id} of the entry to remove. */
    id: string;
}

/**
 * Adds or replaces a {@link BackgroundWork} entry by `id`, independently of turn
 * state.
 */
export interface ChatBackgroundWorkSetAction {
    type: 'chat/backgroundWorkSet';
    /** The complete entry. */
    work: BackgroundWork;
}

/**
 * The live canvas channels exposed by this chat changed.
 *
 * Replaces {@link ChatState.canvases | `state.canvases`} entirely. Set to
 * `undefined` to clear the collection.
 */
export interface ChatCanvasesChangedAction {
    type: 'chat/canvasesChanged';
    /** New canvas channel references, or `undefined` to clear the collection. */
    canvases?: CanvasReference[];
}

/**
 * The {@link Changeset | catalogue of changesets} the agent host advertises
 * for this chat changed. Replaces
 * {@link ChatState.changesets | `state.changesets`} entirely
 * (full-replacement semantics) — set to `undefined` to clear the catalogue.
 *
 * Entries SHOULD describe Branch, Uncommitted Changes, or other views scoped
 * to the chat's effective {@link ChatState.workingDirectories | working
 * directories}. Clients subscribe to each advertised changeset URI for
 * file-level updates through the existing `changeset/*` action stream.
 */
export interface ChatChangesetsChangedAction {
    type: 'chat/changesetsChanged';
    /** New catalogue, or `undefined` to clear it. */
    changesets?: Changeset[];
}

/**
 * Streaming text chunk from the assistant, appended to a specific response part.
 *
 * The server MUST first emit a `chat/responsePart` to create the target
 * markdown part, then use this action to append text to it.
 */
export interface ChatDeltaAction {
    type: 'chat/delta';
    /** Turn identifier */
    turnId: string;
    /** Identifier of the response part to append to */
    partId: string;
    /** Text chunk */
    content: string;
    /**
     * Additional provider-specific metadata for this action.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI, and
     * agent hosts MAY use it to carry per-event context that does not fit any
     * other field — for example, attributing the event to a specific agent
     * (such as a sub-agent acting within the turn). Mirrors the MCP `_meta`
     * convention.
     */
    _meta?: JsonObject;
}

/**
 * The chat's draft input changed.
 *
 * Clients MAY periodically sync their local input state — the message the user
 * is composing, including its {@link Message.model | model} /
 * {@link Message.agent | agent} selection and attachments — into the chat's
 * {@link ChatState.draft | `draft`} so it survives reloads and is visible to
 * other clients viewing the same chat. Eager syncing is **not** required;
 * clients SHOULD debounce and MAY sync only at convenient points. Set `draft`
 * to `undefined` to clear it (e.g. once the message is sent).
 *
 * A client is only allowed to draft {@link MessageKind.User} messages.
 */
export interface ChatDraftChangedAction {
    type: 'chat/draftChanged';
    /** New draft message, or `undefined` to clear it */
    draft?: Message;
}

/** Error during turn processing. */
export interface ChatErrorAction {
    type: 'chat/error';
    /** Turn identifier */
    turnId: string;
    /**
     * Elapsed turn duration in milliseconds, measured by the producer's own
     * clock. Clients MUST NOT derive this by subtracting timestamps — cross-
     * client clocks may differ — and MUST treat it as opaque, producer-supplied
     * data.
     */
    duration: number;
    /**
     * Error part to append to the response stream before finalizing the turn.
     * Its optional `resumable` flag indicates whether the turn can be resumed.
     */
    part: ErrorResponsePart;
    /**
     * Additional provider-specific metadata for this action.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI, and
     * agent hosts MAY use it to carry per-event context that does not fit any
     * other field — for example, attributing the event to a specific agent
     * (such as a sub-agent acting within the turn). Mirrors the MCP `_meta`
     * convention.
     */
    _meta?: JsonObject;
}

/** Draft, submitted, or skipped answer for one question. */
export type ChatInputAnswer =
    | ({ state: 'draft' } & ChatInputAnswered)
    | ({ state: 'submitted' } & ChatInputAnswered)
    | ChatInputSkipped;

/**
 * A client updated, submitted, skipped, or removed a single in-progress answer.
 *
 * Dispatching with `answer: undefined` removes that question's answer draft.
 */
export interface ChatInputAnswerChangedAction {
    type: 'chat/inputAnswerChanged';
    /** Input request identifier */
    requestId: string;
    /** Question identifier within the input request */
    questionId: string;
    /** Updated answer, or `undefined` to clear an answer draft */
    answer?: ChatInputAnswer;
}

/** Value captured for one answer. */
export type ChatInputAnswerValue =
    | ChatInputTextAnswerValue
    | ChatInputNumberAnswerValue
    | ChatInputBooleanAnswerValue
    | ChatInputSelectedAnswerValue
    | ChatInputSelectedManyAnswerValue;

export interface ChatInputAnswered {
    /** Answer value */
    value: ChatInputAnswerValue;
}

export interface ChatInputBooleanAnswerValue {
    kind: 'boolean';
    value: boolean;
}

/** Boolean question within a chat input request. */
export interface ChatInputBooleanQuestion {
    kind: 'boolean';
    /** Stable question identifier used as the key in `answers` */
    id: string;
    /** Short display title */
    title?: string;
    /** Prompt shown to the user */
    message: string;
    /** Whether the user must answer this question to accept the request */
    required?: boolean;
    /** Default boolean value */
    defaultValue?: boolean;
}

/**
 * A client submitted an accept, decline, or cancel response to an input request.
 *
 * If accepted, the server uses `answers` (when provided) plus the request's
 * synced answer state to resume the blocked operation. The reducer records the
 * response and final answers on the existing {@link InputRequestResponsePart}.
 */
export interface ChatInputCompletedAction {
    type: 'chat/inputCompleted';
    /** Input request identifier */
    requestId: string;
    /** Completion outcome */
    response: ChatInputResponseKind;
    /** Optional final answer replacement, keyed by question ID */
    answers?: Record<string, ChatInputAnswer>;
}

/** Multi-select question within a chat input request. */
export interface ChatInputMultiSelectQuestion {
    kind: 'multi-select';
    /** Stable question identifier used as the key in `answers` */
    id: string;
    /** Short display title */
    title?: string;
    /** Prompt shown to the user */
    message: string;
    /** Whether the user must answer this question to accept the request */
    required?: boolean;
    /** Options the user may select from */
    options: ChatInputOption[];
    /** Whether the user may enter text in addition to selecting options */
    allowFreeformInput?: boolean;
    /** Minimum selected item count */
    min?: number;
    /** Maximum selected item count */
    max?: number;
}

export interface ChatInputNumberAnswerValue {
    kind: 'number';
    value: number;
}

/** Numeric question within a chat input request. */
export interface ChatInputNumberQuestion {
    /** Stable question identifier used as the key in `answers` */
    id: string;
    /** Short display title */
    title?: string;
    /** Prompt shown to the user */
    message: string;
    /** Whether the user must answer this question to accept the request */
    required?: boolean;
    /** Minimum value */
    min?: number;
    /** Maximum value */
    max?: number;
    /** Default numeric value */
    defaultValue?: number;
}

/** A choice in a select-style question. */
export interface ChatInputOption {
    /** Stable option identifier; for MCP enum values this is the enum string */
    id: string;
    /** Display label */
    label: string;
    /** Optional secondary text */
    description?: string;
    /** Whether this option is the recommended/default choice */
    recommended?: boolean;
}

/** One question within a chat input request. */
export type ChatInputQuestion =
    | ChatInputTextQuestion
    | ({ kind: 'number' } & ChatInputNumberQuestion)
    | ({ kind: 'integer' } & ChatInputNumberQuestion)
    | ChatInputBooleanQuestion
    | ChatInputSingleSelectQuestion
    | ChatInputMultiSelectQuestion;

/**
 * The request payload carried by an {@link InputRequestResponsePart}.
 *
 * The server creates or replaces the containing response part with
 * `chat/inputRequested`. Clients sync drafts with `chat/inputAnswerChanged`
 * and submit responses with `chat/inputCompleted`.
 */
export interface ChatInputRequest {
    /** Stable request identifier */
    id: string;
    /** Display message for the request as a whole */
    message?: string;
    /** URL the user should review or open, for URL-style elicitations */
    url?: string;
    /** Ordered questions to ask the user */
    questions?: ChatInputQuestion[];
    /** Current draft or submitted answers, keyed by question ID */
    answers?: Record<string, ChatInputAnswer>;
}

/**
 * A session requested input from the user.
 *
 * Creates an unresolved {@link InputRequestResponsePart} in the active turn,
 * or replaces the unresolved part with the same request `id`. Answer drafts
 * are preserved unless `request.answers` is provided.
 */
export interface ChatInputRequestedAction {
    type: 'chat/inputRequested';
    /** Input request to create or replace */
    request: ChatInputRequest;
}

/** How a client completed an input request. */
export type ChatInputResponseKind = 'accept' | 'decline' | 'cancel';

export interface ChatInputSelectedAnswerValue {
    kind: 'selected';
    value: string;
    /** Free-form text entered instead of selecting an option */
    freeformValues?: string[];
}

export interface ChatInputSelectedManyAnswerValue {
    kind: 'selected-many';
    value: string[];
    /** Free-form text entered in addition to selected options */
    freeformValues?: string[];
}

/** Single-select question within a chat input request. */
export interface ChatInputSingleSelectQuestion {
    kind: 'single-select';
    /** Stable question identifier used as the key in `answers` */
    id: string;
    /** Short display title */
    title?: string;
    /** Prompt shown to the user */
    message: string;
    /** Whether the user must answer this question to accept the request */
    required?: boolean;
    /** Options the user may select from */
    options: ChatInputOption[];
    /** Whether the user may enter text instead of selecting an option */
    allowFreeformInput?: boolean;
}

export interface ChatInputSkipped {
    state: 'skipped';
    /** Free-form reason or value captured while skipping, if any */
    freeformValues?: string[];
}

/** Value captured for one answer. */
export interface ChatInputTextAnswerValue {
    kind: 'text';
    value: string;
}

/** Text question within a chat input request. */
export interface ChatInputTextQuestion {
    kind: 'text';
    /** Stable question identifier used as the key in `answers` */
    id: string;
    /** Short display title */
    title?: string;
    /** Prompt shown to the user */
    message: string;
    /** Whether the user must answer this question to accept the request */
    required?: boolean;
    /** Format hint for text questions, such as `email`, `uri`, `date`, or `date-time` */
    format?: string;
    /** Minimum string length */
    min?: number;
    /** Maximum string length */
    max?: number;
    /** Default text */
    defaultValue?: string;
}

/**
 * How a user can interact with a chat.
 *
 * - `Full` — user can send messages and watch (default when absent)
 * - `ReadOnly` — user can watch but not send messages (e.g. agent team workers)
 * - `Hidden` — internal worker not shown in UI at all
 *
 * Supports the agent-team pattern where a lead chat is fully interactive and
 * worker chats are read-only (visible for observability) or hidden (internal
 * implementation detail). The harness sets this based on the chat's role;
 * the UI uses it to show appropriate controls.
 */
export type ChatInteractivity = 'full' | 'read-only' | 'hidden';

/**
 * The archived state of the chat changed.
 *
 * Dispatched by a client to archive a chat independently of its owning
 * session or to restore it. Archiving the session's default chat is equivalent
 * to archiving the session and SHOULD use `session/isArchivedChanged` instead.
 */
export interface ChatIsArchivedChangedAction {
    type: 'chat/isArchivedChanged';
    /** Whether the chat is archived */
    isArchived: boolean;
}

/**
 * The read state of the chat changed.
 *
 * Dispatched by a client to mark any known chat, including the owning
 * session's default chat, as read (e.g. after viewing it) or unread. This
 * changes only the addressed chat; it does not change the read state of its
 * owning session or sibling chats. Use `session/isReadChanged` only to change
 * the owning session's independent read state. After accepting this action,
 * the host also synchronizes the addressed chat's `ChatSummary.status` and
 * `SessionChatSummary.status` projections.
 */
export interface ChatIsReadChangedAction {
    type: 'chat/isReadChanged';
    /** Whether the chat has been read */
    isRead: boolean;
}

/**
 * Whether this chat is structurally eligible to be the source of `moveChat`
 * changed.
 *
 * The host is authoritative and MUST also update the owning session's chat
 * catalog with `session/chatUpdated` so `ChatSummary.movable` stays in sync.
 * A chat referenced by its owning session's `defaultChat` MUST always carry
 * `movable: false`.
 */
export interface ChatMovableChangedAction {
    type: 'chat/movableChanged';
    /** Whether this chat is structurally eligible to be moved. */
    movable: boolean;
}

/** How a chat came into existence. */
export type ChatOrigin =
    | 'user'
    | { kind: 'fork'; chat: string; turnId: string }
    | { kind: 'sideChat'; chat: string; turnId: string; selection?: SideChatSelection }
    | { kind: 'tool'; chat: string; toolCallId: string };

/**
 * A pending message was removed (steering or queued).
 *
 * Dispatched by clients to cancel a pending message, or by the server when
 * it consumes a message (e.g. starting a turn from a queued message or
 * injecting a steering message into the current turn).
 */
export interface ChatPendingMessageRemovedAction {
    type: 'chat/pendingMessageRemoved';
    /** Whether this is a steering or queued message */
    kind: PendingMessageKind;
    /** Identifier of the pending message to remove */
    id: string;
}

/**
 * A pending message was set (upsert semantics: creates or replaces).
 *
 * For steering messages, this always replaces the single steering message.
 * For queued messages, if a message with the given `id` already exists it is
 * updated in place; otherwise it is appended to the queue. If the chat is
 * idle when a queued message is set, the server SHOULD immediately consume it
 * and start a new turn.
 *
 * A client is only allowed to send {@link MessageKind.User} messages.
 */
export interface ChatPendingMessageSetAction {
    type: 'chat/pendingMessageSet';
    /** Whether this is a steering or queued message */
    kind: PendingMessageKind;
    /** Unique identifier for this pending message */
    id: string;
    /** The message content */
    message: Message;
}

/**
 * Reorder the queued messages.
 *
 * The `order` array contains the IDs of queued messages in their new
 * desired order. IDs not present in the current queue are ignored.
 * Queued messages whose IDs are absent from `order` are appended at
 * the end in their original relative order (so a client with a stale
 * view of the queue never silently drops messages).
 */
export interface ChatQueuedMessagesReorderedAction {
    type: 'chat/queuedMessagesReordered';
    /** Queued message IDs in the desired order */
    order: string[];
}

/**
 * Reasoning/thinking text from the model, appended to a specific reasoning response part.
 *
 * The server MUST first emit a `chat/responsePart` to create the target
 * reasoning part, then use this action to append text to it.
 */
export interface ChatReasoningAction {
    type: 'chat/reasoning';
    /** Turn identifier */
    turnId: string;
    /** Identifier of the reasoning response part to append to */
    partId: string;
    /** Reasoning text chunk */
    content: string;
    /**
     * Additional provider-specific metadata for this action.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI, and
     * agent hosts MAY use it to carry per-event context that does not fit any
     * other field — for example, attributing the event to a specific agent
     * (such as a sub-agent acting within the turn). Mirrors the MCP `_meta`
     * convention.
     */
    _meta?: JsonObject;
}

/**
 * Structured content appended to the response.
 *
 * An {@link ErrorResponsePart} MUST be appended with {@link ChatErrorAction}
 * instead so adding the part and ending the turn are one atomic transition.
 */
export interface ChatResponsePartAction {
    type: 'chat/responsePart';
    /** Turn identifier */
    turnId: string;
    /** Response part to append; error parts are ignored. */
    part: ResponsePart;
    /**
     * Additional provider-specific metadata for this action.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI, and
     * agent hosts MAY use it to carry per-event context that does not fit any
     * other field — for example, attributing the event to a specific agent
     * (such as a sub-agent acting within the turn). Mirrors the MCP `_meta`
     * convention.
     */
    _meta?: JsonObject;
}

/**
 * Lightweight catalog entry for a chat, carried in
 * {@link SessionState.chats | `SessionState.chats`}. The full conversation
 * lives in {@link ChatState}, which inlines (denormalizes) every field below.
 */
export interface ChatSummary {
    /** Chat URI */
    resource: string;
    /** Chat title */
    title: string;
    /** Current chat status (reuses SessionStatus shape) */
    status: number;
    /** Human-readable description of what the chat is currently doing */
    activity?: string;
    /** Last modification timestamp (ISO 8601, e.g. `"2025-03-10T18:42:03.123Z"`) */
    modifiedAt: string;
    /**
     * Aggregate summary of file changes associated with this chat. Servers may
     * populate this to give clients a quick at-a-glance view of the chat's
     * footprint without requiring the client to subscribe to a changeset.
     */
    changes?: ChangesSummary;
    /** How this chat came into existence */
    origin?: ChatOrigin;
    /**
     * Whether this chat is structurally eligible to be the source of
     * `moveChat`. Absence means `false`.
     *
     * See {@link ChatState.movable} for the full semantics.
     */
    movable?: boolean;
    /**
     * How the user can interact with this chat. See {@link ChatInteractivity}.
     *
     * Supports agent-team patterns where worker chats are read-only or hidden.
     * Absence defaults to {@link ChatInteractivity.Full} for backward
     * compatibility.
     */
    interactivity?: ChatInteractivity;
    /**
     * The subset of the session's working directories this chat uses.
     * See {@link ChatState.workingDirectories} for the full semantics.
     */
    workingDirectories?: string[];
}

/**
 * A running tool call is paused pending MCP authentication. Transitions the
 * tool call from `running` to `auth-required`.
 *
 * The server dispatches this when the MCP server backing the call responds
 * with a 401/403 challenge mid-execution (see
 * {@link McpAuthRequirement.reason | `insufficientScope`}). The host SHOULD
 * pair this with `session/inputNeededSet` (kind `toolAuthentication`) so the
 * block is visible at the session-summary level, mirroring
 * {@link McpServerAuthRequiredState}'s own `InputNeeded` guidance.
 *
 * Only valid for tool calls contributed by an MCP server — the reducer is a
 * no-op if the tool call's `contributor` is not
 * {@link ToolCallContributorKind.MCP | MCP-kind}.
 */
export interface ChatToolCallAuthRequiredAction {
    type: 'chat/toolCallAuthRequired';
    /** Turn identifier */
    turnId: string;
    /** Tool call identifier */
    toolCallId: string;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI.
     * For example, a `ptyTerminal` key with `{ input: string; output: string }`
     * indicates the tool operated on a terminal (both `input` and `output` may
     * contain escape sequences).
     */
    _meta?: JsonObject;
    /** The authentication challenge blocking this invocation. */
    auth: McpAuthRequirement;
}

/**
 * The authentication challenge blocking a tool call has been resolved (the
 * client pushed a token via `authenticate` and the host validated it).
 * Transitions the tool call from `auth-required` back to `running`,
 * preserving the fields it had before pausing.
 *
 * The host SHOULD remove the corresponding `session/inputNeededSet` entry
 * (kind `toolAuthentication`) once this is dispatched.
 */
export interface ChatToolCallAuthResolvedAction {
    type: 'chat/toolCallAuthResolved';
    /** Turn identifier */
    turnId: string;
    /** Tool call identifier */
    toolCallId: string;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI.
     * For example, a `ptyTerminal` key with `{ input: string; output: string }`
     * indicates the tool operated on a terminal (both `input` and `output` may
     * contain escape sequences).
     */
    _meta?: JsonObject;
}

/**
 * Tool execution finished. Transitions to `completed` or `pending-result-confirmation`
 * if `requiresResultConfirmation` is `true`.
 *
 * For client-provided tools (whose tool call state carries a client
 * `ToolCallContributor` with a `clientId`), the owning client dispatches this
 * action with the execution result. The server SHOULD reject this action if the
 * dispatching client does not match the contributor's `clientId`.
 *
 * Servers waiting on a client tool call MAY time out after a reasonable duration
 * if the implementing client disconnects or becomes unresponsive, and dispatch
 * this action with `result.success = false` and an appropriate error.
 *
 * A client MAY also dispatch this action with a **failed** result (
 * `result.success: false`) for a tool call currently in `auth-required`
 * status, to cancel that invocation without completing the pending MCP
 * authentication challenge. This always transitions the tool call straight
 * to `completed`, preserving the fields it had before pausing for auth;
 * `requiresResultConfirmation` is ignored for this transition; the
 * cancellation can never enter `pending-result-confirmation`, since there is
 * no real result to review.
 *
 * A **successful** result (`result.success: true`) is invalid for a tool
 * call in `auth-required` status — execution never resumed after the
 * challenge, so there's nothing that could have produced it. The reducer
 * MUST reject/ignore it as a no-op, leaving the tool call in
 * `auth-required`. The client must resolve the auth challenge
 * (`chat/toolCallAuthResolved`) before completing successfully.
 */
export interface ChatToolCallCompleteAction {
    type: 'chat/toolCallComplete';
    /** Turn identifier */
    turnId: string;
    /** Tool call identifier */
    toolCallId: string;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI.
     * For example, a `ptyTerminal` key with `{ input: string; output: string }`
     * indicates the tool operated on a terminal (both `input` and `output` may
     * contain escape sequences).
     */
    _meta?: JsonObject;
    /** Execution result */
    result: ToolCallResult;
    /** If true, the result requires client approval before finalizing */
    requiresResultConfirmation?: boolean;
}

/** Client approves or denies a pending tool call (merged approved + denied variants). */
export interface ChatToolCallConfirmedAction {
    type: 'chat/toolCallConfirmed';
    turnId: string;
    toolCallId: string;
    /** Additional provider-specific metadata for this tool call. */
    _meta?: JsonObject;
    /** Whether the tool call was approved. */
    approved: boolean;
    /** How the tool was confirmed (present when approved). */
    confirmed?: ToolCallConfirmationReason;
    /** Why the tool was cancelled (present when denied). */
    reason?: ToolCallCancellationReason;
    /** Edited tool input parameters, if the client modified them before confirming. */
    editedToolInput?: string;
    /** What the user suggested doing instead (present when denied). */
    userSuggestion?: Message;
    /** Explanation for the denial. */
    reasonMessage?: StringOrMarkdown;
    /** ID of the selected confirmation option, if the server provided options. */
    selectedOptionId?: string;
}

/**
 * Partial content produced while a tool is still executing.
 *
 * Replaces the `content` array on the running tool call state. Clients can
 * use this to display live feedback (e.g. a terminal reference) before the
 * tool completes.
 *
 * For client-provided tools (whose tool call state carries a client
 * `ToolCallContributor` with a `clientId`), the owning client dispatches this
 * action to stream intermediate content while executing. The server SHOULD
 * reject this action if the dispatching client does not match the contributor's
 * `clientId`.
 */
export interface ChatToolCallContentChangedAction {
    type: 'chat/toolCallContentChanged';
    /** Turn identifier */
    turnId: string;
    /** Tool call identifier */
    toolCallId: string;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI.
     * For example, a `ptyTerminal` key with `{ input: string; output: string }`
     * indicates the tool operated on a terminal (both `input` and `output` may
     * contain escape sequences).
     */
    _meta?: JsonObject;
    /** The current partial content for the running tool call */
    content: ToolResultContent[];
}

/** Streaming partial parameters for a tool call. */
export interface ChatToolCallDeltaAction {
    type: 'chat/toolCallDelta';
    /** Turn identifier */
    turnId: string;
    /** Tool call identifier */
    toolCallId: string;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI.
     * For example, a `ptyTerminal` key with `{ input: string; output: string }`
     * indicates the tool operated on a terminal (both `input` and `output` may
     * contain escape sequences).
     */
    _meta?: JsonObject;
    /** Partial parameter content to append, if provided by the host. */
    content?: string;
    /** Updated progress message */
    invocationMessage?: StringOrMarkdown;
}

/**
 * Tool call parameters are complete, or a running tool requires re-confirmation.
 *
 * When dispatched for a `streaming` tool call, transitions to `pending-confirmation`
 * or directly to `running` if `confirmed` is set.
 *
 * When dispatched for a `running` tool call (e.g. mid-execution permission needed),
 * transitions back to `pending-confirmation`. The `invocationMessage` and `_meta`
 * SHOULD be updated to describe the specific confirmation needed. Clients use the
 * standard `chat/toolCallConfirmed` flow to approve or deny.
 *
 * For client-provided tools, the server typically sets `confirmed` to
 * `'not-needed'` so the tool transitions directly to `running`, where the
 * owning client can begin execution immediately.
 */
export interface ChatToolCallReadyAction {
    type: 'chat/toolCallReady';
    /** Turn identifier */
    turnId: string;
    /** Tool call identifier */
    toolCallId: string;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI.
     * For example, a `ptyTerminal` key with `{ input: string; output: string }`
     * indicates the tool operated on a terminal (both `input` and `output` may
     * contain escape sequences).
     */
    _meta?: JsonObject;
    /**
     * Final contributor metadata. MUST NOT change execution ownership established
     * at `chat/toolCallStart`; a client contributor must keep the same `clientId`.
     */
    contributor?: ToolCallContributor;
    /**
     * Final human-readable description of what the tool invocation intends to do.
     * When present, replaces the provisional intention from `chat/toolCallStart`.
     */
    intention?: string;
    /** Message describing what the tool will do or what confirmation is needed */
    invocationMessage: StringOrMarkdown;
    /** Final tool input */
    toolInput?: ToolInput;
    /** Short title for the confirmation prompt (e.g. `"Run in terminal"`, `"Write file"`) */
    confirmationTitle?: StringOrMarkdown;
    /** Risk assessment that informed the confirmation requirement. */
    riskAssessment?: ToolCallRiskAssessment;
    /** File edits that this tool call will perform, for preview before confirmation */
    edits?: FileEditCollection;
    /** Whether the agent host allows the client to edit the tool's input parameters before confirming */
    editable?: boolean;
    /** If set, the tool was auto-confirmed and transitions directly to `running` */
    confirmed?: ToolCallConfirmationReason;
    /**
     * Options the server offers for this confirmation. When present, the client
     * SHOULD render these instead of a plain approve/deny UI. Each option
     * belongs to a {@link ConfirmationOptionGroup} so the client can still
     * categorise the choices.
     */
    options?: ConfirmationOption[];
}

/**
 * Client approves or denies a tool's result.
 *
 * If `approved` is `false`, the tool transitions to `cancelled` with reason `result-denied`.
 */
export interface ChatToolCallResultConfirmedAction {
    type: 'chat/toolCallResultConfirmed';
    /** Turn identifier */
    turnId: string;
    /** Tool call identifier */
    toolCallId: string;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI.
     * For example, a `ptyTerminal` key with `{ input: string; output: string }`
     * indicates the tool operated on a terminal (both `input` and `output` may
     * contain escape sequences).
     */
    _meta?: JsonObject;
    /** Whether the result was approved */
    approved: boolean;
}

/**
 * A tool call begins — parameters are streaming from the LM.
 *
 * The server sets {@link ToolCallContributor | `contributor`} to identify
 * the origin of the tool. For client-provided tools, the named client is
 * responsible for executing the tool once it reaches the `running` state
 * and dispatching `chat/toolCallComplete`. For MCP-served tools, the
 * server executes the call against the named `McpServerCustomization`.
 */
export interface ChatToolCallStartAction {
    type: 'chat/toolCallStart';
    /** Turn identifier */
    turnId: string;
    /** Tool call identifier */
    toolCallId: string;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI.
     * For example, a `ptyTerminal` key with `{ input: string; output: string }`
     * indicates the tool operated on a terminal (both `input` and `output` may
     * contain escape sequences).
     */
    _meta?: JsonObject;
    /** Internal tool name (for debugging/logging) */
    toolName: string;
    /** Human-readable tool name */
    displayName: string;
    /** Human-readable description of what the tool invocation intends to do */
    intention?: string;
    /**
     * Reference to the contributor of the tool being called. Absent for
     * server-side tools that are not contributed by a client or MCP server.
     */
    contributor?: ToolCallContributor;
}

/**
 * Truncates a session's history. If `turnId` is provided, all turns after that
 * turn are removed and the specified turn is kept. If `turnId` is omitted, all
 * turns are removed.
 *
 * If there is an active turn it is silently dropped and the chat status
 * returns to `idle`.
 *
 * Common use-case: truncate old data then dispatch a new
 * `chat/turnStarted` with an edited message.
 */
export interface ChatTruncatedAction {
    type: 'chat/truncated';
    /** Keep turns up to and including this turn. Omit to clear all turns. */
    turnId?: string;
}

/** Turn was aborted; server stops processing. */
export interface ChatTurnCancelledAction {
    type: 'chat/turnCancelled';
    /** Turn identifier */
    turnId: string;
    /**
     * Elapsed turn duration in milliseconds, measured by the producer's own
     * clock. Clients MUST NOT derive this by subtracting timestamps — cross-
     * client clocks may differ — and MUST treat it as opaque, producer-supplied
     * data.
     */
    duration: number;
    /**
     * Additional provider-specific metadata for this action.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI, and
     * agent hosts MAY use it to carry per-event context that does not fit any
     * other field — for example, attributing the event to a specific agent
     * (such as a sub-agent acting within the turn). Mirrors the MCP `_meta`
     * convention.
     */
    _meta?: JsonObject;
}

/** Turn finished — the assistant is idle. */
export interface ChatTurnCompleteAction {
    type: 'chat/turnComplete';
    /** Turn identifier */
    turnId: string;
    /**
     * Elapsed turn duration in milliseconds, measured by the producer's own
     * clock. Clients MUST NOT derive this by subtracting timestamps — cross-
     * client clocks may differ — and MUST treat it as opaque, producer-supplied
     * data.
     */
    duration: number;
    /**
     * Additional provider-specific metadata for this action.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI, and
     * agent hosts MAY use it to carry per-event context that does not fit any
     * other field — for example, attributing the event to a specific agent
     * (such as a sub-agent acting within the turn). Mirrors the MCP `_meta`
     * convention.
     */
    _meta?: JsonObject;
}

/**
 * Resumes the latest errored turn without adding another message.
 *
 * The turn MUST be the latest turn, its state MUST be `error`, and its final
 * response part MUST be a resumable error. The reducer reopens the same turn
 * with its existing message, response parts, and usage intact. The host then
 * resumes the provider's execution for that turn.
 */
export interface ChatTurnResumeAction {
    type: 'chat/turnResume';
    /** Identifier of the errored turn. */
    turnId: string;
}

/**
 * A new message has been sent to the agent, and a new turn starts.
 *
 * A client is only allowed to send {@link MessageKind.User} messages.
 */
export interface ChatTurnStartedAction {
    type: 'chat/turnStarted';
    /** Turn identifier */
    turnId: string;
    /** ISO 8601 timestamp when this turn started. */
    startedAt: string;
    /** The new message */
    message: Message;
    /** If this turn was auto-started from a queued message, the ID of that message */
    queuedMessageId?: string;
    /**
     * Additional provider-specific metadata for this action.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI, and
     * agent hosts MAY use it to carry per-event context that does not fit any
     * other field — for example, attributing the event to a specific agent
     * (such as a sub-agent acting within the turn). Mirrors the MCP `_meta`
     * convention.
     */
    _meta?: JsonObject;
}

/**
 * Loads older completed turns into this chat's state.
 *
 * Hosts dispatch this before responding to `fetchTurns`, and before applying
 * any operation that references a turn older than the currently loaded window.
 * `turns` is ordered oldest-first and is prepended to the current `turns`
 * window. `turnsNextCursor` replaces the state's cursor; omit it when all
 * retained turns are now loaded.
 */
export interface ChatTurnsLoadedAction {
    type: 'chat/turnsLoaded';
    /** Older completed turns loaded into the state, ordered oldest-first. */
    turns: Turn[];
    /** Opaque cursor for loading the next older page, if one remains. */
    turnsNextCursor?: string;
}

/** Token usage report for a turn. */
export interface ChatUsageAction {
    type: 'chat/usage';
    /** Turn identifier */
    turnId: string;
    /** Token usage data */
    usage: UsageInfo;
    /**
     * Additional provider-specific metadata for this action.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI, and
     * agent hosts MAY use it to carry per-event context that does not fit any
     * other field — for example, attributing the event to a specific agent
     * (such as a sub-agent acting within the turn). Mirrors the MCP `_meta`
     * convention.
     */
    _meta?: JsonObject;
}

/**
 * A working directory was removed from this chat's
 * {@link ChatState.workingDirectories} subset.
 *
 * Removes `directory` from the chat's subset; a no-op when it is not present.
 * Idempotent, mirroring `session/workingDirectoryRemoved`. Only affects the
 * chat's subset — the directory remains in the session's set.
 */
export interface ChatWorkingDirectoryRemovedAction {
    type: 'chat/workingDirectoryRemoved';
    /** The working directory to remove from this chat's subset. */
    directory: string;
}

/**
 * A working directory was added to this chat's
 * {@link ChatState.workingDirectories} subset.
 *
 * Membership semantics keyed by the directory URI: the reducer appends
 * `directory` when the chat's subset does not already contain it (creating the
 * subset if absent) and is a no-op when it is already present. `directory` MUST
 * be one of the owning session's {@link SessionState.workingDirectories}; a host
 * MUST reject a directory that is not. Only valid when the agent advertises
 * {@link AgentCapabilities.multipleWorkingDirectories}.
 */
export interface ChatWorkingDirectorySetAction {
    type: 'chat/workingDirectorySet';
    /** The working directory to add to this chat's subset. */
    directory: string;
}

/** A child customization living inside a plugin or directory. */
export type ChildCustomization =
    | AgentCustomization
    | SkillCustomization
    | PromptCustomization
    | RuleCustomization
    | HookCustomization
    | McpServerCustomization;

/**
 * A {@link PluginCustomization} as published by a client. Extends the
 * server-facing shape with an opaque `nonce` so the host can detect when
 * the client's view of a plugin has changed and re-parse only as needed.
 *
 * Clients SHOULD include a `nonce`. Server-side fields like
 * {@link ContainerCustomizationBase.children | `children`} and
 * {@link ContainerCustomizationBase.load | `load`} are typically left
 * absent on publication and populated by the host when the resolved
 * plugin appears in {@link SessionState.customizations}.
 */
export interface ClientPluginCustomization {
    /**
     * Session-unique opaque identifier. Used by every action that targets a
     * specific customization. Minted by whoever publishes the customization
     * (typically the agent host).
     */
    id: string;
    /**
     * Source URI for this customization. A plugin URL, a file URI, or a
     * directory URI.
     *
     * For declarations that live inside a larger file — e.g. an MCP
     * server declared inline in a `plugins.json` manifest — `uri` points
     * to the containing file and {@link CustomizationBase.range | `range`}
     * narrows it to the declaration's span.
     */
    uri: string;
    /** Human-readable name. */
    name: string;
    /** Icons for UI display. */
    icons?: Icon[];
    /**
     * Optional span within {@link CustomizationBase.uri | `uri`} when this
     * customization is a subset of a larger file (for example, one entry
     * in an inline `mcpServers` block of a `plugins.json` manifest).
     * Absent when the customization covers the whole resource.
     */
    range?: TextRange;
    /**
     * Additional provider-specific metadata for this customization.
     *
     * Mirrors the MCP `_meta` convention. Optional and opaque to the
     * protocol; producers and consumers agree on its contents
     * out-of-band.
     */
    _meta?: JsonObject;
    /**
     * `clientId` of the client that contributed this container. Absent for
     * server-originated entries.
     */
    clientId?: string;
    /**
     * Host-reported load state. Absent means the host has not yet reported
     * a load state for this container.
     */
    load?: CustomizationLoadState;
    /**
     * Children discovered inside this container.
     *
     * Absent means the host has not parsed this container yet. An empty
     * array means the host parsed the container and it contributes
     * nothing.
     */
    children?: ChildCustomization[];
    type: CustomizationType;
    /** Explicit enablement decisions. See {@link McpServerCustomization.enablement}. */
    enablement?: CustomizationEnablement[];
    /**
     * Version of the plugin, sourced from the
     * [Open Plugins](https://open-plugins.com/) manifest's optional
     * `version` field (semver, e.g. `"1.2.0"`). Absent when the manifest
     * declares no version — the field is optional there — or the source
     * has no version concept. Provenance / display only: the host neither
     * parses nor enforces it.
     */
    version?: string;
    /** Opaque version token used by the host to detect changes. */
    nonce?: string;
    /**
     * Explicit enablement decisions for children this plugin contributes,
     * keyed by child name (for MCP servers, the server name as it appears in
     * the bundled `.mcp.json`).
     *
     * Bundled children are discovered by the host rather than published by the
     * client, so the client cannot attach `enablement` to them directly. This
     * carries the client's global decision for each one; the host applies it
     * under the child's durable key.
     */
    childEnablement?: Record<string, CustomizationEnablement[]>;
}

/**
 * A JSON Schema-compatible property descriptor with display extensions.
 *
 * Standard JSON Schema fields (`type`, `title`, `description`, `default`,
 * `enum`) allow validators to process the schema. Display extensions
 * (`enumLabels`, `enumDescriptions`) are parallel arrays that provide UI
 * metadata for each `enum` value.
 *
 * This is the generic base type. See {@link SessionConfigPropertySchema} for
 * session-specific extensions.
 */
export interface ConfigPropertySchema {
    /** JSON Schema: property type */
    type: string;
    /** JSON Schema: human-readable label for the property */
    title: string;
    /** JSON Schema: description / tooltip */
    description?: string;
    /** JSON Schema: default value */
    default?: unknown;
    /** JSON Schema: allowed values. May be primitives of any JSON type. */
    enum?: unknown[];
    /** Display extension: human-readable label per enum value (parallel array) */
    enumLabels?: string[];
    /** Display extension: description per enum value (parallel array) */
    enumDescriptions?: string[];
    /** JSON Schema: when `true`, the property is displayed but cannot be modified by the user */
    readOnly?: boolean;
    /** JSON Schema: schema for array items (used when `type` is `'array'`) */
    items?: ConfigPropertySchema;
    /** JSON Schema: minimum number of array items (used when `type` is `'array'`) */
    minItems?: number;
    /** JSON Schema: maximum number of array items (used when `type` is `'array'`) */
    maxItems?: number;
    /** JSON Schema: property descriptors for object properties (used when `type` is `'object'`) */
    properties?: Record<string, ConfigPropertySchema>;
    /** JSON Schema: list of required property ids (used when `type` is `'object'`) */
    required?: string[];
    /** JSON Schema: schema for additional properties not listed in `properties` (used when `type` is `'object'`). */
    additionalProperties?: ConfigPropertySchema;
}

/**
 * A JSON Schema object describing available configuration properties.
 *
 * This is the generic base type. See {@link SessionConfigSchema} for
 * session-specific usage.
 */
export interface ConfigSchema {
    /** JSON Schema: always `'object'` */
    type: string;
    /** JSON Schema: property descriptors keyed by property id */
    properties: Record<string, ConfigPropertySchema>;
    /** JSON Schema: list of required property ids */
    required?: string[];
}

/**
 * A confirmation option that the server offers for a tool call awaiting
 * approval. Allows richer choices beyond simple approve/deny — for example,
 * "Approve in this Session" or "Deny with reason."
 */
export interface ConfirmationOption {
    /** Unique identifier for the option, returned in the confirmed action */
    id: string;
    /** Human-readable label displayed to the user */
    label: string;
    /** Whether this option represents an approval or denial */
    kind: ConfirmationOptionKind;
    /**
     * Logical group number for visual categorisation.
     *
     * Clients SHOULD display options in the order they are defined and MAY
     * use differing group numbers to insert dividers between logical clusters
     * of options.
     */
    group?: number;
}

/** Whether a confirmation option represents an approval or denial action. */
export type ConfirmationOptionKind = 'approve' | 'deny';

/** A reference to large content stored outside the state tree. */
export interface ContentRef {
    /** Content URI */
    uri: string;
    /** Approximate size in bytes */
    sizeHint?: number;
    /** Content MIME type */
    contentType?: string;
    /** Content nonce */
    nonce?: string;
}

/** A top-level customization (plugin, directory, or bare MCP server). */
export type Customization = PluginCustomization | DirectoryCustomization | McpServerCustomization;

/** Container partially loaded but has warnings. */
export interface CustomizationDegradedState {
    kind: 'degraded';
    /** Human-readable description of the warning. */
    message: string;
}

/** A single explicit customization enablement decision. */
export type CustomizationEnablement =
    | { kind: 'global'; enabled: boolean }
    | { kind: 'workspace'; uri: string; enabled: boolean }
    | { kind: 'session'; enabled: boolean };

/** Container failed to load. */
export interface CustomizationErrorState {
    kind: 'error';
    /** Human-readable error message. */
    message: string;
}

/** Host-reported load state for a container customization. */
export type CustomizationLoadState =
    | CustomizationLoadingState
    | CustomizationLoadedState
    | CustomizationDegradedState
    | CustomizationErrorState;

/** Container loaded successfully. */
export interface CustomizationLoadedState {
    kind: 'loaded';
}

/** Container is being loaded by the host. */
export interface CustomizationLoadingState {
    kind: 'loading';
}

/**
 * Discriminant for the kind of customization.
 *
 * Top-level entries in {@link SessionState.customizations} and
 * {@link AgentInfo.customizations} are either container customizations
 * ({@link CustomizationType.Plugin | `Plugin`} or
 * {@link CustomizationType.Directory | `Directory`}) or
 * {@link CustomizationType.McpServer | `McpServer`} entries surfaced
 * directly by the host. The remaining types appear only as children of
 * a container.
 */
export type CustomizationType =
    | 'plugin'
    | 'directory'
    | 'agent'
    | 'skill'
    | 'prompt'
    | 'rule'
    | 'hook'
    | 'mcpServer';

/**
 * A directory the host watches for this session.
 *
 * Presence in the customization list signals that the host may discover
 * customizations from this directory. When `writable` is `true`, clients
 * MAY persist new customizations into the directory using
 * [`resourceWrite`](/reference/common#resourcewrite); the host will
 * then surface the resulting child via the customization actions.
 *
 * The directory may not yet exist on disk.
 */
export interface DirectoryCustomization {
    type: 'directory';
    /**
     * Session-unique opaque identifier. Used by every action that targets a
     * specific customization. Minted by whoever publishes the customization
     * (typically the agent host).
     */
    id: string;
    /**
     * Source URI for this customization. A plugin URL, a file URI, or a
     * directory URI.
     *
     * For declarations that live inside a larger file — e.g. an MCP
     * server declared inline in a `plugins.json` manifest — `uri` points
     * to the containing file and {@link CustomizationBase.range | `range`}
     * narrows it to the declaration's span.
     */
    uri: string;
    /** Human-readable name. */
    name: string;
    /** Icons for UI display. */
    icons?: Icon[];
    /**
     * Optional span within {@link CustomizationBase.uri | `uri`} when this
     * customization is a subset of a larger file (for example, one entry
     * in an inline `mcpServers` block of a `plugins.json` manifest).
     * Absent when the customization covers the whole resource.
     */
    range?: TextRange;
    /**
     * Additional provider-specific metadata for this customization.
     *
     * Mirrors the MCP `_meta` convention. Optional and opaque to the
     * protocol; producers and consumers agree on its contents
     * out-of-band.
     */
    _meta?: JsonObject;
    /**
     * `clientId` of the client that contributed this container. Absent for
     * server-originated entries.
     */
    clientId?: string;
    /**
     * Host-reported load state. Absent means the host has not yet reported
     * a load state for this container.
     */
    load?: CustomizationLoadState;
    /**
     * Children discovered inside this container.
     *
     * Absent means the host has not parsed this container yet. An empty
     * array means the host parsed the container and it contributes
     * nothing.
     */
    children?: ChildCustomization[];
    /** Whether this container is currently enabled. */
    enabled: boolean;
    /** Which child customization type this directory holds. */
    contents: CustomizationType;
    /** Whether clients may write into this directory. */
    writable: boolean;
}

/** Directory entry returned by `resourceList`. */
export interface DirectoryEntry {
    /** Base name of the entry */
    name: string;
    /** Whether the entry is a file or directory */
    type: string;
}

export interface ErrorInfo {
    /** Error type identifier */
    errorType: string;
    /** Human-readable error message */
    message: string;
    /** Stack trace */
    stack?: string;
    /**
     * Additional provider-specific metadata for this error.
     * Clients MAY look for well-known optional keys here to provide enhanced UI
     * (e.g. a structured chat fetch error for richer, localized messaging).
     */
    _meta?: JsonObject;
}

/**
 * An error encountered while processing a turn.
 *
 * This is the detailed source of truth for the error. {@link Turn.state}
 * remains {@link TurnState.Error} while the turn is stopped at this error so
 * clients can detect the terminal state without inspecting response parts.
 *
 * When {@link resumable} is `true`, a client may dispatch `chat/turnResume`
 * while this is the latest turn and its state is {@link TurnState.Error}.
 * Clients decide whether and how to present that affordance.
 */
export interface ErrorResponsePart {
    kind: 'error';
    /** Error details. */
    error: ErrorInfo;
    /** Whether the host can resume the turn from this error. Only `true` enables resume. */
    resumable?: boolean;
}

/**
 * Describes a file modification with before/after state and diff metadata.
 *
 * Supports creates (only `after`), deletes (only `before`), renames/moves
 * (different `uri` in `before` and `after`), and edits (same `uri`, different content).
 */
export interface FileEdit {
    /** The file state before the edit. Absent for file creations or for in-place file edits. */
    before?: FileEditSide;
    /** The file state after the edit. Absent for file deletions. */
    after?: FileEditSide;
    /** Optional diff display metadata */
    diff?: FileEditDiffStats;
}

export interface FileEditCollection {
    items: FileEdit[];
}

export interface FileEditDiffStats {
    /** Number of items added (e.g., lines for text files, cells for notebooks) */
    added?: number;
    /** Number of items removed (e.g., lines for text files, cells for notebooks) */
    removed?: number;
}

export interface FileEditSide {
    /** URI of the file on this side of the edit */
    uri: string;
    /** Reference to the file content on this side of the edit */
    content: ContentRef;
}

/** A hook manifest contributed by a plugin or directory. */
export interface HookCustomization {
    type: 'hook';
    /**
     * Session-unique opaque identifier. Used by every action that targets a
     * specific customization. Minted by whoever publishes the customization
     * (typically the agent host).
     */
    id: string;
    /**
     * Source URI for this customization. A plugin URL, a file URI, or a
     * directory URI.
     *
     * For declarations that live inside a larger file — e.g. an MCP
     * server declared inline in a `plugins.json` manifest — `uri` points
     * to the containing file and {@link CustomizationBase.range | `range`}
     * narrows it to the declaration's span.
     */
    uri: string;
    /** Human-readable name. */
    name: string;
    /** Icons for UI display. */
    icons?: Icon[];
    /**
     * Optional span within {@link CustomizationBase.uri | `uri`} when this
     * customization is a subset of a larger file (for example, one entry
     * in an inline `mcpServers` block of a `plugins.json` manifest).
     * Absent when the customization covers the whole resource.
     */
    range?: TextRange;
    /**
     * Additional provider-specific metadata for this customization.
     *
     * Mirrors the MCP `_meta` convention. Optional and opaque to the
     * protocol; producers and consumers agree on its contents
     * out-of-band.
     */
    _meta?: JsonObject;
    /**
     * Whether this child is individually enabled. Absent means enabled, so a
     * producer only needs to set it to surface a child that exists but is
     * turned off on its own.
     *
     * This flag is independent of the parent container's: the **effective**
     * enabled state of a plugin child is the plugin's derived enabled value and
     * `(child.enabled ?? true)`, so a disabled plugin disables every child
     * regardless of each child's own flag. A directory child instead uses the
     * directory's `enabled` value and its own flag.
     *
     * A child is turned on or off by id with
     * {@link SessionCustomizationToggledAction | `session/customizationToggled`}.
     */
    enabled?: boolean;
}

/** An optionally-sized icon that can be displayed in a user interface. */
export interface Icon {
    /**
     * A standard URI pointing to an icon resource. May be an HTTP/HTTPS URL or a
     * `data:` URI with Base64-encoded image data.
     *
     * Consumers SHOULD take steps to ensure URLs serving icons are from the
     * same domain as the client/server or a trusted domain.
     *
     * Consumers SHOULD take appropriate precautions when consuming SVGs as they can contain
     * executable JavaScript.
     */
    src: string;
    /**
     * Optional MIME type override if the source MIME type is missing or generic.
     * For example: `"image/png"`, `"image/jpeg"`, or `"image/svg+xml"`.
     */
    contentType?: string;
    /**
     * Optional array of strings that specify sizes at which the icon can be used.
     * Each string should be in WxH format (e.g., `"48x48"`, `"96x96"`) or `"any"` for scalable formats like SVG.
     *
     * If not provided, the client should assume that the icon can be used at any size.
     */
    sizes?: string[];
    /**
     * Optional specifier for the theme this icon is designed for. `"light"` indicates
     * the icon is designed to be used with a light background, and `"dark"` indicates
     * the icon is designed to be used with a dark background.
     *
     * If not provided, the client should assume the icon can be used with any theme.
     */
    theme?: string;
}

/**
 * A live or resolved input request (elicitation) in the turn response stream.
 *
 * The server inserts the part with `chat/inputRequested`. While
 * {@link response} is absent, clients can update answer drafts with
 * `chat/inputAnswerChanged` and submit a response with `chat/inputCompleted`.
 * Completion updates this part in place so its stream position is stable and
 * the full interaction remains durable and backfillable via `fetchTurns`.
 *
 * If the turn ends without a submitted response, the unresolved part remains
 * in the completed turn transcript with {@link response} absent.
 */
export interface InputRequestResponsePart {
    kind: 'inputRequest';
    /**
     * The request, carrying its `id`, `message`, `url`, `questions`, and current
     * draft or submitted `answers`.
     */
    request: ChatInputRequest;
    /**
     * How the request was resolved. Absent until a client submits `accept`,
     * `decline`, or `cancel` with `chat/inputCompleted`.
     */
    response?: ChatInputResponseKind;
}

/**
 * Result of the {@link InvokeChangesetOperationParams | `invokeChangesetOperation`}
 * command.
 *
 * Success is implicit: the server returns this result when it accepted
 * the operation. Failure is signalled by rejecting the JSON-RPC request
 * with an appropriate error code, not by any field on this result. The
 * operation MAY still produce subsequent failure feedback through the
 * {@link ChangesetStatusChangedAction | `changeset/statusChanged`} stream.
 */
export interface InvokeChangesetOperationResult {
    /** Optional human-readable message describing the result. */
    message?: StringOrMarkdown;
    /** Optional follow-up: a URI to open (e.g. a PR), a content ref, etc. */
    followUp?: ChangesetOperationFollowUp;
}

export interface MarkdownResponsePart {
    kind: 'markdown';
    /** Part identifier, used by `chat/delta` to target this part for content appends */
    id: string;
    /** Markdown content */
    content: string;
}

/**
 * Why an MCP server is currently in the {@link McpServerStatus.AuthRequired}
 * state. Mirrors the three failure modes defined by the
 * [MCP authorization spec](https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization.md).
 */
export type McpAuthRequiredReason = 'required' | 'expired' | 'insufficientScope';

/**
 * Reusable MCP authentication challenge — the RFC 9728 discovery info a
 * client needs to obtain a token and push it via the `authenticate` command.
 * Deliberately carries **no token**: this describes what is being asked for,
 * never the bearer token itself.
 *
 * Shared by two independent state machines that describe the same OAuth
 * challenge from different vantage points:
 *
 * - {@link McpServerAuthRequiredState} — the MCP server itself cannot serve
 *   *any* request until the client authenticates.
 * - {@link ToolCallAuthRequiredState} — a specific in-flight tool call is
 *   paused pending authentication (typically
 *   {@link McpAuthRequiredReason.InsufficientScope} step-up auth
 *   mid-execution). The server state and the tool-call state remain
 *   separate on purpose: the server saying "I need auth" and a tool
 *   invocation saying "I am waiting on that auth" are different facts that
 *   can be true independently.
 */
export interface McpAuthRequirement {
    /** Why authentication is required. */
    reason: McpAuthRequiredReason;
    /**
     * Pre-registered OAuth client to use for authorization. When present, clients
     * MUST use these credentials instead of dynamic client registration.
     */
    oauthClient?: McpOAuthClient;
    /**
     * RFC 9728 Protected Resource Metadata. The `resource` field is the
     * canonical MCP server URI per RFC 8707, used as the OAuth `resource`
     * indicator. `authorization_servers` is REQUIRED by the MCP
     * authorization spec.
     */
    resource: ProtectedResourceMetadata;
    /**
     * Scopes required for the current challenge, parsed from the
     * `WWW-Authenticate: Bearer scope="…"` header (or `scopes_supported`
     * fallback). Authoritative for the next authorization request — clients
     * MUST NOT assume any subset/superset relationship to
     * `resource.scopes_supported`.
     */
    requiredScopes?: string[];
    /** Human-readable hint, typically from the OAuth `error_description`. */
    description?: string;
}

/**
 * A pre-registered OAuth client that clients use instead of dynamic client
 * registration when resolving an MCP authentication challenge.
 */
export interface McpOAuthClient {
    /** OAuth client identifier registered with the authorization server. */
    clientId: string;
    /**
     * OAuth client secret for a confidential client. Absence means the client is
     * public and uses a secretless flow such as authorization code with PKCE.
     */
    clientSecret?: string;
}

/**
 * Server is reachable but cannot serve requests until the client
 * authenticates. Mirrors the discovery flow defined by
 * [RFC 9728](https://datatracker.ietf.org/doc/html/rfc9728)
 * (Protected Resource Metadata) and the OAuth 2.1 / RFC 6750 challenge
 * semantics required by the MCP authorization spec.
 *
 * Clients react to this state by calling the existing `authenticate`
 * command with the {@link ProtectedResourceMetadata.resource | resource}
 * carried here. There is **no** `notify/authRequired` notification for
 * MCP servers — the action stream is the single source of truth.
 *
 * When the transition is triggered by a request issued during a turn
 * — most commonly
 * {@link McpAuthRequiredReason.InsufficientScope | `InsufficientScope`}
 * surfacing mid-tool-call — the host SHOULD also raise
 * {@link SessionStatus.InputNeeded} on the session so the block is
 * visible at the summary level. Clients SHOULD watch this status on
 * any MCP server backing a running tool call and surface an explicit
 * affordance (e.g. a "grant additional access" prompt) tied to that
 * tool call, rather than relying on the user to notice the
 * customization’s status badge.
 */
export interface McpServerAuthRequiredState {
    kind: 'authRequired';
    /** Why authentication is required. */
    reason: McpAuthRequiredReason;
    /**
     * Pre-registered OAuth client to use for authorization. When present, clients
     * MUST use these credentials instead of dynamic client registration.
     */
    oauthClient?: McpOAuthClient;
    /**
     * RFC 9728 Protected Resource Metadata. The `resource` field is the
     * canonical MCP server URI per RFC 8707, used as the OAuth `resource`
     * indicator. `authorization_servers` is REQUIRED by the MCP
     * authorization spec.
     */
    resource: ProtectedResourceMetadata;
    /**
     * Scopes required for the current challenge, parsed from the
     * `WWW-Authenticate: Bearer scope="…"` header (or `scopes_supported`
     * fallback). Authoritative for the next authorization request — clients
     * MUST NOT assume any subset/superset relationship to
     * `resource.scopes_supported`.
     */
    requiredScopes?: string[];
    /** Human-readable hint, typically from the OAuth `error_description`. */
    description?: string;
}

/**
 * An MCP server contributed by a plugin or directory.
 *
 * When the server is declared inline in the containing plugin manifest,
 * `uri` points at the manifest file and
 * {@link CustomizationBase.range | `range`} narrows it to the
 * declaration's span.
 *
 * The MCP server customization also reflects its current status.
 */
export interface McpServerCustomization {
    type: 'mcpServer';
    /**
     * Session-unique opaque identifier. Used by every action that targets a
     * specific customization. Minted by whoever publishes the customization
     * (typically the agent host).
     */
    id: string;
    /**
     * Source URI for this customization. A plugin URL, a file URI, or a
     * directory URI.
     *
     * For declarations that live inside a larger file — e.g. an MCP
     * server declared inline in a `plugins.json` manifest — `uri` points
     * to the containing file and {@link CustomizationBase.range | `range`}
     * narrows it to the declaration's span.
     */
    uri: string;
    /** Human-readable name. */
    name: string;
    /** Icons for UI display. */
    icons?: Icon[];
    /**
     * Optional span within {@link CustomizationBase.uri | `uri`} when this
     * customization is a subset of a larger file (for example, one entry
     * in an inline `mcpServers` block of a `plugins.json` manifest).
     * Absent when the customization covers the whole resource.
     */
    range?: TextRange;
    /**
     * Additional provider-specific metadata for this customization.
     *
     * Mirrors the MCP `_meta` convention. Optional and opaque to the
     * protocol; producers and consumers agree on its contents
     * out-of-band.
     */
    _meta?: JsonObject;
    /**
     * Explicit enablement decisions for this customization, one entry per scope
     * that has one. This is a wire contract: producers MUST publish entries
     * sorted by descending specificity (Session, Workspace, then Global).
     * The agent host emits at most one Workspace entry, for the session's primary
     * working directory. Consumers MAY treat
     * `enablement[0]` as the decisive decision and
     * `enablement?.[0]?.enabled ?? true` as the effective enabled value. An
     * absent or empty array means no explicit decision exists, so the
     * customization is enabled by default.
     *
     * Flows in both directions. A client publishes this alongside a customization
     * to assert its global decision, which is authoritative for the Global scope;
     * a client always includes its global entry, even when enabled. The host
     * publishes the fully resolved set across all scopes, and consumers derive
     * the effective enabled value from that set.
     */
    enablement?: CustomizationEnablement[];
    /** Current lifecycle state of the MCP server. */
    state: McpServerState;
    /**
     * An `mcp://`-protocol channel the client uses to side-channel traffic
     * into the upstream MCP server itself. The channel is NOT a fresh raw MCP
     * connection: it piggybacks on the AHP transport
     * and skips the MCP `initialize` sequence.
     *
     * The agent host MAY only serve a subset of MCP on this
     * channel; the served subset is described by domain-specific
     * capabilities such as those in
     * {@link McpServerCustomizationApps.capabilities}.
     *
     * The channel URI SHOULD be stable across the server's lifetime, but
     * the agent host MAY change it (for example across a restart) and
     * MAY only expose it while the server is in
     * {@link McpServerStatus.Ready | `Ready`}. Absence means no
     * side-channel is currently available.
     */
    channel?: string;
    /**
     * MCP App support. This property SHOULD be advertised for MCP servers
     * which support apps.
     */
    mcpApp?: McpServerCustomizationApps;
}

/**
 * Information from the agent host needed to render MCP Apps served
 * by this MCP server.
 */
export interface McpServerCustomizationApps {
    /**
     * The subset of MCP App
     * [`HostCapabilities`](https://github.com/modelcontextprotocol/ext-apps/blob/main/specification/draft/apps.mdx)
     * the AHP host can satisfy for Views backed by this server. The
     * client feeds these straight through into the `hostCapabilities` of
     * the `ui/initialize` response delivered to the View.
     */
    capabilities: AhpMcpUiHostCapabilities;
}

/**
 * Server failed to start, crashed, or otherwise transitioned to a
 * non-recoverable error. Use {@link McpServerStatus.AuthRequired}
 * for authentication failures.
 */
export interface McpServerErrorState {
    kind: 'error';
    /** Error details. */
    error: ErrorInfo;
}

/** Server is running and serving requests. */
export interface McpServerReadyState {
    kind: 'ready';
}

/** Server is registered with the host but has not yet started. */
export interface McpServerStartingState {
    kind: 'starting';
    /**
     * Hosts SHOULD set this to `true` when this server's startup will hold back
     * the processing of new messages (for example, the next turn) while the
     * server's contributions — such as its tools — are discovered.
     *
     * Clients MAY dispatch
     * {@link SessionMcpServerBackgroundRequestedAction | `session/mcpServerBackgroundRequested`}
     * through an appropriate affordance to ask the host to background the
     * startup.
     */
    blocking?: boolean;
}

/** Discriminated lifecycle status of an MCP server customization. */
export type McpServerState =
    | McpServerStartingState
    | McpServerReadyState
    | McpServerAuthRequiredState
    | McpServerErrorState
    | McpServerStoppedState;

/**
 * Server has been shut down. The host MAY remove the server from the
 * session entirely shortly after this state.
 */
export interface McpServerStoppedState {
    kind: 'stopped';
}

/**
 * A message that initiates or steers a turn. Messages can originate from the
 * user, the agent, a tool, an automation, or be system-generated (see
 * {@link MessageOrigin}).
 *
 * Attachments MAY be referenced inside {@link Message.text} via their
 * {@link MessageAttachmentBase.range} field. Attachments without a range are
 * still associated with the message but do not correspond to a specific span
 * in the text.
 */
export interface Message {
    /** Message text */
    text: string;
    /** The origin of the message */
    origin: MessageOrigin;
    /** File/selection attachments */
    attachments?: MessageAttachment[];
    /**
     * The model this message was, or will be, sent with.
     *
     * For historic user/agent messages this records the model actually used, so
     * a client editing or resending the message can retain that selection. For a
     * {@link ChatState.draft | draft} it carries the model the user picked for
     * the message they are composing. Absent means the agent host's default
     * model applies.
     */
    model?: ModelSelection;
    /**
     * The custom agent this message was, or will be, sent with.
     *
     * For historic messages this records the agent actually used; for a
     * {@link ChatState.draft | draft} it carries the agent the user picked.
     * Absent means no custom agent — the provider's default behavior applies.
     */
    agent?: AgentSelection;
    /**
     * Additional provider-specific metadata for this message.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI, and
     * agent hosts MAY use it to carry context that does not fit any other
     * field. Mirrors the MCP `_meta` convention.
     */
    _meta?: JsonObject;
}

/**
 * An attachment that references annotations on a session's annotations
 * channel (see {@link AnnotationsState}).
 *
 * When {@link annotationIds} is omitted the attachment references every
 * annotation on the channel; when present it references only the listed
 * {@link Annotation.id | annotation ids}.
 */
export interface MessageAnnotationsAttachment {
    type: 'annotations';
    /**
     * A human-readable label for the attachment (e.g. the filename of a file
     * attachment). Used for display in UI.
     */
    label: string;
    /**
     * If defined, the range in {@link Message.text} that references this
     * attachment. This is a text range, not a byte range.
     */
    range?: TextRange;
    /**
     * Advisory display hint for clients rendering this attachment. Recognized
     * values include:
     *
     * - `'image'`: the attachment is an image
     * - `'document'`: the attachment is a textual document
     * - `'symbol'`: the attachment is a code symbol (e.g. a function or class)
     * - `'directory'`: the attachment is a folder
     * - `'selection'`: the attachment is a selection within a document
     *
     * Implementations MAY provide additional values; clients SHOULD fall back
     * to a reasonable default when an unknown value is encountered.
     */
    displayKind?: string;
    /**
     * Additional implementation-defined metadata for the attachment.
     *
     * If the attachment was produced by the `completions` command, the client
     * MUST preserve every property of `_meta` originally returned by the agent
     * host when sending the user message containing the accepted completion.
     */
    _meta?: JsonObject;
    /**
     * The annotations channel URI (typically `ahp-session:/<uuid>/annotations`).
     * Matches {@link AnnotationsSummary.resource}.
     */
    resource: string;
    /**
     * Specific {@link Annotation.id | annotation ids} to reference. When
     * omitted, the attachment references all annotations on the channel.
     */
    annotationIds?: string[];
}

/** An attachment associated with a `Message`. */
export type MessageAttachment =
    | SimpleMessageAttachment
    | MessageEmbeddedResourceAttachment
    | MessageResourceAttachment
    | MessageAnnotationsAttachment
    | MessageChatAttachment;

/**
 * An attachment that references a chat transcript through a fixed completed
 * turn.
 *
 * The referenced chat MAY belong to a different session than the message's
 * chat. The attachment's model representation identifies the chat in a way
 * that hosts can resolve regardless of the session that owns it.
 *
 * When `endTurn` is omitted, the host MUST resolve and pin the referenced
 * chat's latest completed turn when accepting the message. This lets clients
 * attach a chat without knowing its turn identifiers. When provided, `endTurn`
 * MUST reference a completed, retained turn. The host resolves the transcript
 * from its first retained turn through the pinned turn, inclusive. Later turns
 * do not change the context represented by an already-sent attachment.
 *
 * When the referenced chat has no completed retained turns, the resolved
 * transcript is empty and hosts MUST NOT reject the attachment on that basis.
 *
 * Hosts MUST NOT recursively expand chat attachments found inside the
 * referenced transcript. Clients SHOULD keep rendering `label` if the
 * referenced chat is later pruned, and treat opening `resource` as best-effort.
 */
export interface MessageChatAttachment {
    type: 'chat';
    /**
     * A human-readable label for the attachment (e.g. the filename of a file
     * attachment). Used for display in UI.
     */
    label: string;
    /**
     * If defined, the range in {@link Message.text} that references this
     * attachment. This is a text range, not a byte range.
     */
    range?: TextRange;
    /**
     * Advisory display hint for clients rendering this attachment. Recognized
     * values include:
     *
     * - `'image'`: the attachment is an image
     * - `'document'`: the attachment is a textual document
     * - `'symbol'`: the attachment is a code symbol (e.g. a function or class)
     * - `'directory'`: the attachment is a folder
     * - `'selection'`: the attachment is a selection within a document
     *
     * Implementations MAY provide additional values; clients SHOULD fall back
     * to a reasonable default when an unknown value is encountered.
     */
    displayKind?: string;
    /**
     * Additional implementation-defined metadata for the attachment.
     *
     * If the attachment was produced by the `completions` command, the client
     * MUST preserve every property of `_meta` originally returned by the agent
     * host when sending the user message containing the accepted completion.
     */
    _meta?: JsonObject;
    /** URI of the referenced chat. */
    resource: string;
    /**
     * Last completed turn included in the referenced transcript. When omitted,
     * the host pins the latest completed turn when accepting the message.
     */
    endTurn?: string;
}

/**
 * An attachment whose data is embedded inline as a base64 string.
 *
 * Use this for small binary payloads (e.g. a pasted image) that should be
 * delivered with the user message itself rather than fetched separately.
 */
export interface MessageEmbeddedResourceAttachment {
    type: 'embeddedResource';
    /**
     * A human-readable label for the attachment (e.g. the filename of a file
     * attachment). Used for display in UI.
     */
    label: string;
    /**
     * If defined, the range in {@link Message.text} that references this
     * attachment. This is a text range, not a byte range.
     */
    range?: TextRange;
    /**
     * Advisory display hint for clients rendering this attachment. Recognized
     * values include:
     *
     * - `'image'`: the attachment is an image
     * - `'document'`: the attachment is a textual document
     * - `'symbol'`: the attachment is a code symbol (e.g. a function or class)
     * - `'directory'`: the attachment is a folder
     * - `'selection'`: the attachment is a selection within a document
     *
     * Implementations MAY provide additional values; clients SHOULD fall back
     * to a reasonable default when an unknown value is encountered.
     */
    displayKind?: string;
    /**
     * Additional implementation-defined metadata for the attachment.
     *
     * If the attachment was produced by the `completions` command, the client
     * MUST preserve every property of `_meta` originally returned by the agent
     * host when sending the user message containing the accepted completion.
     */
    _meta?: JsonObject;
    /** Base64-encoded binary data */
    data: string;
    /** Content MIME type (e.g. `"image/png"`, `"application/pdf"`) */
    contentType: string;
    /**
     * Optional selection within the attached textual resource.
     *
     * Only meaningful for textual resources.
     */
    selection?: TextSelection;
}

/** Discriminant for {@link MessageOrigin} — identifies who produced a message. */
export type MessageKind = 'user' | 'agent' | 'tool' | 'automation' | 'systemNotification';

/**
 * Identifies the origin of a {@link Message} — who produced it. For the message
 * that initiates a turn ({@link Turn.message}), this is also the origin of the
 * turn; for steering or queued messages it is just the origin of that message.
 */
export interface MessageOrigin {
    /** The kind of actor that produced the message. */
    kind: MessageKind;
}

/**
 * An attachment that references a resource by URI. The content is not
 * delivered inline; consumers can fetch it via `resourceRead` when needed.
 */
export interface MessageResourceAttachment {
    type: 'resource';
    /**
     * A human-readable label for the attachment (e.g. the filename of a file
     * attachment). Used for display in UI.
     */
    label: string;
    /**
     * If defined, the range in {@link Message.text} that references this
     * attachment. This is a text range, not a byte range.
     */
    range?: TextRange;
    /**
     * Advisory display hint for clients rendering this attachment. Recognized
     * values include:
     *
     * - `'image'`: the attachment is an image
     * - `'document'`: the attachment is a textual document
     * - `'symbol'`: the attachment is a code symbol (e.g. a function or class)
     * - `'directory'`: the attachment is a folder
     * - `'selection'`: the attachment is a selection within a document
     *
     * Implementations MAY provide additional values; clients SHOULD fall back
     * to a reasonable default when an unknown value is encountered.
     */
    displayKind?: string;
    /**
     * Additional implementation-defined metadata for the attachment.
     *
     * If the attachment was produced by the `completions` command, the client
     * MUST preserve every property of `_meta` originally returned by the agent
     * host when sending the user message containing the accepted completion.
     */
    _meta?: JsonObject;
    /** Content URI */
    uri: string;
    /** Approximate size in bytes */
    sizeHint?: number;
    /** Content MIME type */
    contentType?: string;
    /** Content nonce */
    nonce?: string;
    /**
     * Optional selection within the referenced textual resource.
     *
     * Only meaningful for textual resources.
     */
    selection?: TextSelection;
}

/**
 * A model selection: the chosen model ID together with any model-specific
 * configuration values whose keys correspond to the model's
 * {@link SessionModelInfo.configSchema}.
 */
export interface ModelSelection {
    /** Model identifier */
    id: string;
    /**
     * Model-specific configuration values. Values are JSON primitives: most
     * pickers produce strings, but some (e.g. a numeric context-size picker)
     * produce numbers or booleans, which are carried through as-is.
     */
    config?: Record<string, unknown>;
}

/** Options for the {@link AgentCapabilities.multipleChats} capability. */
export interface MultipleChatsCapability {
    /**
     * The agent can fork a chat from a specific turn. When absent or `false`,
     * clients MUST NOT pass a {@link ChatSource} with `kind: "fork"` to
     * `createChat`.
     * Forking always implies multi-chat support.
     */
    fork?: boolean;
    /**
     * The agent can create a side chat from a specific turn. When absent or
     * `false`, clients MUST NOT pass a {@link ChatSource} with
     * `kind: "sideChat"` to `createChat`.
     *
     * A side chat receives the source turn as context without copying the source
     * transcript into its own visible history. The source is identified by a
     * stable `turnId`, which the host resolves against the source chat's current
     * `activeTurn` or retained history. When it names the current active turn,
     * the host snapshots the available partial assistant response at creation
     * time. Side-chat support always implies multi-chat support.
     */
    sideChat?: boolean;
}

/** Options for the {@link AgentCapabilities.multipleWorkingDirectories} capability. */
export interface MultipleWorkingDirectoriesCapability {
    /**
     * The agent's **first** working directory (index `0` of
     * {@link CreateSessionParams.workingDirectories}) is an immutable primary:
     * its URI is fixed for the lifetime of the session — clients MUST NOT remove,
     * reorder, or replace it. Additional directories after it remain equal peers
     * that can be added and removed freely. When
     * {@link primaryReplacement} is also `true`, clients that recognize that
     * capability MUST instead treat the primary as protected and replaceable.
     *
     * Advertised by backends whose agent process is rooted at a single directory
     * that cannot change once the session has started. A backend MAY also
     * advertise this with {@link primaryReplacement} for compatibility with
     * clients that do not recognize the newer capability: those clients retain
     * the safe immutable-primary behavior, while newer clients allow only the
     * targeted replacement action. When both are absent or `false`, all
     * directories are equal peers.
     */
    immutablePrimary?: boolean;
    /**
     * The agent's first working-directory slot (index `0`) is a protected primary
     * whose URI can be atomically replaced with
     * `session/workingDirectoryReplaced`. Clients MUST NOT remove that slot with
     * generic membership actions; additional directories remain equal peers.
     *
     * Backends use this when their cwd-bearing directory can move during a
     * session. It MAY be `true` together with {@link immutablePrimary}; this
     * preserves the immutable-primary guarantee for older clients that do not
     * recognize this capability. Clients that recognize this capability MUST
     * allow a targeted replacement even when `immutablePrimary` is also `true`.
     */
    primaryReplacement?: boolean;
}

/** Partial equivalent of ChatSummary — every field is optional for delta updates. */
export interface PartialChatSummary {
    /** Chat URI */
    resource?: string;
    /** Chat title */
    title?: string;
    /** Current chat status (reuses SessionStatus shape) */
    status?: number;
    /** Human-readable description of what the chat is currently doing */
    activity?: string;
    /** Last modification timestamp (ISO 8601, e.g. `"2025-03-10T18:42:03.123Z"`) */
    modifiedAt?: string;
    /**
     * Aggregate summary of file changes associated with this chat. Servers may
     * populate this to give clients a quick at-a-glance view of the chat's
     * footprint without requiring the client to subscribe to a changeset.
     */
    changes?: ChangesSummary;
    /** How this chat came into existence */
    origin?: ChatOrigin;
    /**
     * Whether this chat is structurally eligible to be the source of
     * `moveChat`. Absence means `false`.
     *
     * See {@link ChatState.movable} for the full semantics.
     */
    movable?: boolean;
    /**
     * How the user can interact with this chat. See {@link ChatInteractivity}.
     *
     * Supports agent-team patterns where worker chats are read-only or hidden.
     * Absence defaults to {@link ChatInteractivity.Full} for backward
     * compatibility.
     */
    interactivity?: ChatInteractivity;
    /**
     * The subset of the session's working directories this chat uses.
     * See {@link ChatState.workingDirectories} for the full semantics.
     */
    workingDirectories?: string[];
}

/** Discriminant for pending message kinds. */
export type PendingMessageKind = 'steering' | 'queued';

/** An [Open Plugins](https://open-plugins.com/) plugin. */
export interface PluginCustomization {
    type: 'plugin';
    /**
     * Session-unique opaque identifier. Used by every action that targets a
     * specific customization. Minted by whoever publishes the customization
     * (typically the agent host).
     */
    id: string;
    /**
     * Source URI for this customization. A plugin URL, a file URI, or a
     * directory URI.
     *
     * For declarations that live inside a larger file — e.g. an MCP
     * server declared inline in a `plugins.json` manifest — `uri` points
     * to the containing file and {@link CustomizationBase.range | `range`}
     * narrows it to the declaration's span.
     */
    uri: string;
    /** Human-readable name. */
    name: string;
    /** Icons for UI display. */
    icons?: Icon[];
    /**
     * Optional span within {@link CustomizationBase.uri | `uri`} when this
     * customization is a subset of a larger file (for example, one entry
     * in an inline `mcpServers` block of a `plugins.json` manifest).
     * Absent when the customization covers the whole resource.
     */
    range?: TextRange;
    /**
     * Additional provider-specific metadata for this customization.
     *
     * Mirrors the MCP `_meta` convention. Optional and opaque to the
     * protocol; producers and consumers agree on its contents
     * out-of-band.
     */
    _meta?: JsonObject;
    /**
     * `clientId` of the client that contributed this container. Absent for
     * server-originated entries.
     */
    clientId?: string;
    /**
     * Host-reported load state. Absent means the host has not yet reported
     * a load state for this container.
     */
    load?: CustomizationLoadState;
    /**
     * Children discovered inside this container.
     *
     * Absent means the host has not parsed this container yet. An empty
     * array means the host parsed the container and it contributes
     * nothing.
     */
    children?: ChildCustomization[];
    /** Explicit enablement decisions. See {@link McpServerCustomization.enablement}. */
    enablement?: CustomizationEnablement[];
    /**
     * Version of the plugin, sourced from the
     * [Open Plugins](https://open-plugins.com/) manifest's optional
     * `version` field (semver, e.g. `"1.2.0"`). Absent when the manifest
     * declares no version — the field is optional there — or the source
     * has no version concept. Provenance / display only: the host neither
     * parses nor enforces it.
     */
    version?: string;
}

/** Policy configuration state for a model. */
export type PolicyState = 'enabled' | 'disabled' | 'unconfigured';

/** Server-owned project metadata for a session. */
export interface ProjectInfo {
    /** Project URI */
    uri: string;
    /** Human-readable project name */
    displayName: string;
}

/** A prompt contributed by a plugin or directory. */
export interface PromptCustomization {
    type: 'prompt';
    /**
     * Session-unique opaque identifier. Used by every action that targets a
     * specific customization. Minted by whoever publishes the customization
     * (typically the agent host).
     */
    id: string;
    /**
     * Source URI for this customization. A plugin URL, a file URI, or a
     * directory URI.
     *
     * For declarations that live inside a larger file — e.g. an MCP
     * server declared inline in a `plugins.json` manifest — `uri` points
     * to the containing file and {@link CustomizationBase.range | `range`}
     * narrows it to the declaration's span.
     */
    uri: string;
    /** Human-readable name. */
    name: string;
    /** Icons for UI display. */
    icons?: Icon[];
    /**
     * Optional span within {@link CustomizationBase.uri | `uri`} when this
     * customization is a subset of a larger file (for example, one entry
     * in an inline `mcpServers` block of a `plugins.json` manifest).
     * Absent when the customization covers the whole resource.
     */
    range?: TextRange;
    /**
     * Additional provider-specific metadata for this customization.
     *
     * Mirrors the MCP `_meta` convention. Optional and opaque to the
     * protocol; producers and consumers agree on its contents
     * out-of-band.
     */
    _meta?: JsonObject;
    /**
     * Whether this child is individually enabled. Absent means enabled, so a
     * producer only needs to set it to surface a child that exists but is
     * turned off on its own.
     *
     * This flag is independent of the parent container's: the **effective**
     * enabled state of a plugin child is the plugin's derived enabled value and
     * `(child.enabled ?? true)`, so a disabled plugin disables every child
     * regardless of each child's own flag. A directory child instead uses the
     * directory's `enabled` value and its own flag.
     *
     * A child is turned on or off by id with
     * {@link SessionCustomizationToggledAction | `session/customizationToggled`}.
     */
    enabled?: boolean;
    /** Short description of what the prompt does. */
    description?: string;
}

/**
 * Describes a protected resource's authentication requirements using
 * [RFC 9728](https://datatracker.ietf.org/doc/html/rfc9728) (OAuth 2.0
 * Protected Resource Metadata) semantics.
 *
 * Field names use snake_case to match the RFC 9728 JSON format.
 */
export interface ProtectedResourceMetadata {
    /**
     * REQUIRED. The protected resource's resource identifier, a URL using the
     * `https` scheme with no fragment component (e.g. `"https://api.github.com"`).
     */
    resource: string;
    /** OPTIONAL. Human-readable name of the protected resource. */
    resource_name?: string;
    /** OPTIONAL. JSON array of OAuth authorization server identifier URLs. */
    authorization_servers?: string[];
    /** OPTIONAL. URL of the protected resource's JWK Set document. */
    jwks_uri?: string;
    /** RECOMMENDED. JSON array of OAuth 2.0 scope values used in authorization requests. */
    scopes_supported?: string[];
    /** OPTIONAL. JSON array of Bearer Token presentation methods supported. */
    bearer_methods_supported?: string[];
    /** OPTIONAL. JSON array of JWS signing algorithms supported. */
    resource_signing_alg_values_supported?: string[];
    /** OPTIONAL. URL of human-readable documentation for the resource. */
    resource_documentation?: string;
    /** OPTIONAL. URL of the resource's data-usage policy. */
    resource_policy_uri?: string;
    /** OPTIONAL. URL of the resource's terms of service. */
    resource_tos_uri?: string;
    /**
     * AHP extension. Whether authentication is required for this resource.
     *
     * - `true` (default) — the agent cannot be used without a valid token.
     *   The server SHOULD return `AuthRequired` (`-32007`) if the client
     *   attempts to use the agent without authenticating.
     * - `false` — the agent works without authentication but MAY offer
     *   enhanced capabilities when a token is provided.
     *
     * Clients SHOULD treat an absent field the same as `true`.
     */
    required?: boolean;
}

/** Reasoning/thinking content from the model. */
export interface ReasoningResponsePart {
    kind: 'reasoning';
    /** Part identifier, used by `chat/reasoning` to target this part for content appends */
    id: string;
    /** Accumulated reasoning text */
    content: string;
}

/** A content part that's a reference to large content stored outside the state tree. */
export interface ResourceResponsePart {
    kind: 'contentRef';
    /** Content URI */
    uri: string;
    /** Approximate size in bytes */
    sizeHint?: number;
    /** Content MIME type */
    contentType?: string;
    /** Content nonce */
    nonce?: string;
}

/**
 * A batch of resource changes observed by the watcher.
 *
 * Watch events are coalesced into batches by the server to keep the
 * action stream tractable; an empty `changes.items` list MUST NOT be
 * dispatched. The reducer does not retain change history — these
 * actions exist purely to deliver events to subscribers, who consume
 * them directly off the action stream and apply their own logic.
 */
export interface ResourceWatchChangedAction {
    type: 'resourceWatch/changed';
    /** The set of changes in this batch, wrapped for forward compatibility. */
    changes: unknown;
}

/** A single part of a response stream (text, tool call, reasoning, content reference). */
export type ResponsePart =
    | MarkdownResponsePart
    | ResourceResponsePart
    | ToolCallResponsePart
    | ReasoningResponsePart
    | SystemNotificationResponsePart
    | InputRequestResponsePart
    | ErrorResponsePart;

/** Fired when the number of active sessions changes. */
export interface RootActiveSessionsChangedAction {
    type: 'root/activeSessionsChanged';
    /** Current count of active sessions */
    activeSessions: number;
}

/** Fired when available agent backends or their models change. */
export interface RootAgentsChangedAction {
    type: 'root/agentsChanged';
    /** Updated agent list */
    agents: AgentInfo[];
}

/**
 * Fired when agent-host configuration values change.
 *
 * By default, the reducer merges the new values into `state.config.values`.
 * Set `replace` to `true` to replace all values instead of merging.
 */
export interface RootConfigChangedAction {
    type: 'root/configChanged';
    /** Updated config values */
    config: JsonObject;
    /** When `true`, replaces all config values instead of merging */
    replace?: boolean;
}

/**
 * Fired when the list of known terminals changes.
 *
 * Full-replacement semantics: the `terminals` array replaces the previous
 * `terminals` entirely.
 */
export interface RootTerminalsChangedAction {
    type: 'root/terminalsChanged';
    /** Updated terminal list (full replacement) */
    terminals: TerminalInfo[];
}

/**
 * A rule contributed by a plugin or directory.
 *
 * Mirrors the [Open Plugins rule](https://open-plugins.com/agent-builders/components/rules)
 * format: a markdown file (e.g. `.mdc`) whose body is injected into
 * context while the rule is active. This type also covers tool-specific
 * "instruction" formats (e.g. VS Code Copilot's
 * `.github/instructions/*.md`), which differ only in naming — they
 * share the same semantics of `description`, optional always-on
 * activation, and optional glob scoping.
 */
export interface RuleCustomization {
    type: 'rule';
    /**
     * Session-unique opaque identifier. Used by every action that targets a
     * specific customization. Minted by whoever publishes the customization
     * (typically the agent host).
     */
    id: string;
    /**
     * Source URI for this customization. A plugin URL, a file URI, or a
     * directory URI.
     *
     * For declarations that live inside a larger file — e.g. an MCP
     * server declared inline in a `plugins.json` manifest — `uri` points
     * to the containing file and {@link CustomizationBase.range | `range`}
     * narrows it to the declaration's span.
     */
    uri: string;
    /** Human-readable name. */
    name: string;
    /** Icons for UI display. */
    icons?: Icon[];
    /**
     * Optional span within {@link CustomizationBase.uri | `uri`} when this
     * customization is a subset of a larger file (for example, one entry
     * in an inline `mcpServers` block of a `plugins.json` manifest).
     * Absent when the customization covers the whole resource.
     */
    range?: TextRange;
    /**
     * Additional provider-specific metadata for this customization.
     *
     * Mirrors the MCP `_meta` convention. Optional and opaque to the
     * protocol; producers and consumers agree on its contents
     * out-of-band.
     */
    _meta?: JsonObject;
    /**
     * Whether this child is individually enabled. Absent means enabled, so a
     * producer only needs to set it to surface a child that exists but is
     * turned off on its own.
     *
     * This flag is independent of the parent container's: the **effective**
     * enabled state of a plugin child is the plugin's derived enabled value and
     * `(child.enabled ?? true)`, so a disabled plugin disables every child
     * regardless of each child's own flag. A directory child instead uses the
     * directory's `enabled` value and its own flag.
     *
     * A child is turned on or off by id with
     * {@link SessionCustomizationToggledAction | `session/customizationToggled`}.
     */
    enabled?: boolean;
    /** Description of what the rule enforces. */
    description?: string;
    /**
     * When `true`, the rule is always active (subject to `globs` if any).
     * When `false` or absent, the agent or user decides whether to apply
     * the rule.
     */
    alwaysApply?: boolean;
    /**
     * Glob patterns the rule applies to. When present, the rule is only
     * active for matching files.
     */
    globs?: string[];
}

/**
 * A client currently providing tools and interactive capabilities to a session.
 *
 * A session MAY have several active clients at once; entries in
 * {@link SessionState.activeClients} are keyed by `clientId`. The server SHOULD
 * automatically remove an active client when that client disconnects.
 */
export interface SessionActiveClient {
    /** Client identifier (matches `clientId` from `initialize`) */
    clientId: string;
    /** Human-readable client name (e.g. `"VS Code"`) */
    displayName?: string;
    /** Tools this client provides to the session */
    tools: ToolDefinition[];
    /**
     * Plugin customizations this client contributes to the session.
     *
     * Clients publish in [Open Plugins](https://open-plugins.com/) format
     * — i.e. always container-shaped plugins. They MAY synthesize virtual
     * plugins in memory and rely on the host to expand them into concrete
     * children inside {@link SessionState.customizations}.
     */
    customizations?: ClientPluginCustomization[];
}

/**
 * An active client was removed from this session.
 *
 * Removes the entry for the client identified by `clientId` from
 * {@link SessionState.activeClients}; a no-op when no entry matches.
 *
 * The host SHOULD dispatch this automatically when a client stops participating
 * in the session — for example when it unsubscribes from the session channel,
 * when it disconnects and does not reconnect within a host-defined grace
 * period, or when a `reconnect` command's `subscriptions` omit a session the
 * client was still active in. When removing a client, the host SHOULD also
 * cancel that client's in-flight tool calls — those whose tool call state
 * carries a client `ToolCallContributor` with the matching `clientId` — by
 * dispatching `chat/toolCallComplete` with `result.success = false`. (There is
 * no per-tool-call server cancel; a failed completion is the cancellation
 * mechanism, and the call ends in `completed` status with a failed result.)
 */
export interface SessionActiveClientRemovedAction {
    type: 'session/activeClientRemoved';
    /** The `clientId` of the active client to remove. */
    clientId: string;
}

/**
 * An active client for this session was added or updated.
 *
 * Upsert semantics keyed by {@link SessionActiveClient.clientId | `clientId`}:
 * a client dispatches this action with its own `SessionActiveClient` to join
 * the session's active clients or refresh its entry, replacing any existing
 * entry that has the same `clientId`. Multiple clients may be active at once.
 * This is also how a client updates its published tools or customizations —
 * re-dispatch with the full, updated entry. Use
 * {@link SessionActiveClientRemovedAction | `session/activeClientRemoved`} to
 * leave. The server SHOULD automatically dispatch that removal when an active
 * client disconnects.
 */
export interface SessionActiveClientSetAction {
    type: 'session/activeClientSet';
    /** The active client to add or update, matched by `clientId`. */
    activeClient: SessionActiveClient;
}

/**
 * The activity description of the session changed.
 *
 * Dispatched by the server to indicate what the session is currently doing
 * (e.g. running a tool, thinking). Clear activity by setting it to `undefined`.
 */
export interface SessionActivityChangedAction {
    type: 'session/activityChanged';
    /** Human-readable description of current activity, or `undefined` to clear */
    activity?: string;
}

/**
 * The {@link Changeset | catalogue of changesets} the agent host
 * advertises for this session changed. Replaces
 * {@link SessionState.changesets | `state.changesets`} entirely
 * (full-replacement semantics) — set to `undefined` to clear the
 * catalogue.
 *
 * Producers dispatch this whenever entries are added or removed. The
 * fan-out happens through this action so observers see catalogue
 * mutations in the same {@link ChangesetAction | per-changeset} action
 * stream they already follow for file-level updates.
 */
export interface SessionChangesetsChangedAction {
    type: 'session/changesetsChanged';
    /** New catalogue, or `undefined` to clear it */
    changesets?: Changeset[];
}

/**
 * A chat was added to this session's catalog. Upsert semantics: if a chat
 * with the same `summary.resource` already exists, the existing entry is
 * replaced.
 *
 * Mirrors the root-channel `root/sessionAdded` notification.
 */
export interface SessionChatAddedAction {
    type: 'session/chatAdded';
    /** The full summary of the newly added (or upserted) chat. */
    summary: ChatSummary;
}

/**
 * A user-input elicitation surfaced at the session level, mirroring the request
 * from an unresolved {@link InputRequestResponsePart} in the owning chat.
 *
 * Respond by dispatching `chat/inputCompleted` (or syncing drafts with
 * `chat/inputAnswerChanged`) to {@link SessionInputRequestBase.chat | `chat`},
 * keyed by {@link ChatInputRequest.id | `request.id`}.
 */
export interface SessionChatInputRequest {
    kind: 'chatInput';
    /**
     * Stable key for this entry, unique within the session's
     * {@link SessionState.inputNeeded} list. The host derives it however it likes
     * (for example from the chat URI plus the underlying request or tool-call
     * id); consumers MUST treat it as opaque. It is the key for the
     * `session/inputNeededSet` / `session/inputNeededRemoved` upsert convention.
     */
    id: string;
    /**
     * The chat the underlying request lives in. This is the channel a client
     * dispatches its response to — it does not need to have subscribed to that
     * chat first.
     */
    chat: string;
    /** The mirrored chat input request. */
    request: ChatInputRequest;
}

/**
 * A chat was removed from this session's catalog. No-op when no entry matches.
 *
 * Mirrors the root-channel `root/sessionRemoved` notification.
 */
export interface SessionChatRemovedAction {
    type: 'session/chatRemoved';
    /** The URI of the chat to remove. */
    chat: string;
}

/** Lightweight chat information in a session catalog. */
export interface SessionChatSummary {
    /** Canonical chat URI */
    resource: string;
    /** Human-readable chat title */
    title: string;
    /** How this chat was created, when known */
    origin?: ChatOrigin;
    /**
     * How the user can interact with this chat.
     *
     * Generic clients use this to omit hidden chats and disable input for
     * read-only chats. Absence defaults to {@link ChatInteractivity.Full} for
     * backward compatibility.
     */
    interactivity?: ChatInteractivity;
    /**
     * Current chat status, matching {@link ChatSummary.status}.
     *
     * Includes the activity bits and the orthogonal {@link SessionStatus.IsRead}
     * and {@link SessionStatus.IsArchived} flags. Generic clients use these bits
     * to present read, unread, or archived chats in session lists without
     * subscribing to the session or chat channel. Absence means the host did
     * not provide the status; clients MUST treat it as unknown, not as unread
     * or unarchived.
     */
    status?: number;
    /**
     * Aggregate summary of file changes associated with this chat.
     *
     * Servers may populate this so session lists can show per-chat change
     * counts without subscribing to the session or chat channel. Updates travel
     * with the rest of the catalog in `root/sessionSummaryChanged`.
     */
    changes?: ChangesSummary;
}

/**
 * One existing chat's summary fields changed.
 *
 * Partial-update semantics: only fields present in `changes` are written;
 * omitted fields are preserved. Identity fields (`resource`) MUST NOT be
 * carried in `changes`. No-op when no entry with `chat` exists — clients
 * SHOULD then wait for a {@link SessionChatAddedAction | `session/chatAdded`}.
 *
 * Mirrors the root-channel `root/sessionSummaryChanged` notification.
 * When `changes.status` changes, the host MUST project that exact value into
 * the matching `SessionChatSummary.status` field and publish
 * the updated compact chat catalog through `root/sessionSummaryChanged`.
 */
export interface SessionChatUpdatedAction {
    type: 'session/chatUpdated';
    /** The URI of the chat whose summary changed. */
    chat: string;
    /**
     * Mutable summary fields that changed; omitted fields are unchanged.
     *
     * Identity fields (`resource`) never change and MUST be omitted by
     * senders; receivers SHOULD ignore them if present.
     */
    changes: PartialChatSummary;
}

/**
 * The owning session's authoritative chat catalog order changed.
 *
 * Host-emitted convergence signal; it never originates from a client
 * dispatch. `chats` is the complete resulting order and MUST contain every
 * chat currently in the session exactly once. Reducers replace the catalog
 * order while preserving each matching summary. Invalid or incomplete orders
 * are ignored.
 */
export interface SessionChatsReorderedAction {
    type: 'session/chatsReordered';
    /** Every chat URI in authoritative catalog order. */
    chats: string[];
}

/**
 * Client changed a mutable config value mid-session.
 *
 * Only properties with `sessionMutable: true` in the config schema may be
 * changed. The server validates and broadcasts the action; the reducer merges
 * the new values into `state.config.values`.
 */
export interface SessionConfigChangedAction {
    type: 'session/configChanged';
    /** Updated config values */
    config: JsonObject;
    /** When `true`, replaces all config values instead of merging */
    replace?: boolean;
}

/** Session backend failed to initialize. */
export interface SessionCreationFailedAction {
    type: 'session/creationFailed';
    /** Error details */
    error: ErrorInfo;
}

/**
 * Removes a customization by id.
 *
 * Searches every container and its children for the entry. If the entry
 * is a container, its children are removed with it. Is a no-op when no
 * matching id is found.
 */
export interface SessionCustomizationRemovedAction {
    type: 'session/customizationRemoved';
    /** The id of the customization to remove. */
    id: string;
}

/**
 * A client updated a customization's enablement decisions.
 *
 * Matches `id` against every top-level customization first — a plugin or
 * directory container, or a bare top-level MCP server — then against the
 * children inside each container (a skill, agent, or other entry). Plugins
 * and MCP servers retain the matched entry's explicit decisions; other
 * entries update their `enabled` flag. Disabling a plugin still disables all
 * of its children — the effective state of a plugin child is the plugin's
 * derived enabled value and `(child.enabled ?? true)` — so toggling a child
 * only matters while its plugin is enabled. Is a no-op when no
 * customization has the given `id`.
 *
 * The `enablement` array completely replaces all explicit decisions. A caller
 * changing one scope must include every decision it intends to preserve.
 */
export interface SessionCustomizationToggledAction {
    type: 'session/customizationToggled';
    /** The id of the container or child to update. */
    id: string;
    /** Explicit enablement decisions, replacing the previous list entirely. */
    enablement: CustomizationEnablement[];
}

/**
 * Upserts a top-level customization (plugin or directory).
 *
 * The reducer locates the existing entry by `customization.id`:
 *
 * - If found, the entry is replaced entirely with `customization`,
 *   including its `children` array. To preserve existing children, the
 *   host must include them on the payload.
 * - If not found, the entry is appended.
 */
export interface SessionCustomizationUpdatedAction {
    type: 'session/customizationUpdated';
    /** The customization to upsert (matched by `customization.id`). */
    customization: Customization;
}

/**
 * The session's customizations have changed.
 *
 * Full-replacement semantics: the `customizations` array replaces the
 * previous `customizations` entirely.
 */
export interface SessionCustomizationsChangedAction {
    type: 'session/customizationsChanged';
    /** Updated customization list (full replacement). */
    customizations: Customization[];
}

/** The default chat input-routing hint for this session changed. */
export interface SessionDefaultChatChangedAction {
    type: 'session/defaultChatChanged';
    /** New default chat URI, or `undefined` to clear the hint. */
    defaultChat?: string;
}

/**
 * A session-level input request was removed.
 *
 * Removes the entry identified by `id` from
 * {@link SessionState.inputNeeded}; a no-op when no entry matches.
 *
 * Server-originated: the host dispatches this once the underlying request
 * resolves (the user answers, the tool call is confirmed, or the client
 * reports its result).
 */
export interface SessionInputNeededRemovedAction {
    type: 'session/inputNeededRemoved';
    /** The `id` of the input request to remove. */
    id: string;
}

/**
 * A session-level input request was added or updated.
 *
 * Upsert semantics keyed by {@link SessionInputRequest.id | `request.id`}: the
 * host dispatches this with the full {@link SessionInputRequest} to append a new
 * entry to {@link SessionState.inputNeeded} or replace the existing entry with
 * the same `id`.
 *
 * Server-originated: the host mirrors chat-level requests (elicitations, tool
 * confirmations, client-tool executions) into the session aggregate so clients
 * subscribed only to the session channel can discover them. Clients respond by
 * dispatching the ordinary `chat/*` action to the entry's `chat` channel — see
 * {@link SessionInputRequest}.
 */
export interface SessionInputNeededSetAction {
    type: 'session/inputNeededSet';
    /** The input request to add or update, matched by `id`. */
    request: SessionInputRequest;
}

/** One outstanding piece of input a session is blocked on, aggregated across all chats. */
export type SessionInputRequest =
    | SessionChatInputRequest
    | SessionToolConfirmationRequest
    | SessionToolClientExecutionRequest
    | SessionToolAuthenticationRequest;

/**
 * The archived state of the session changed.
 *
 * Dispatched by a client to archive a session (e.g. the task is
 * complete) or to unarchive it.
 */
export interface SessionIsArchivedChangedAction {
    type: 'session/isArchivedChanged';
    /** Whether the session is archived */
    isArchived: boolean;
}

/**
 * The read state of the session changed.
 *
 * Dispatched by a client to mark a session as read (e.g. after viewing it)
 * or unread (e.g. after new activity since the client last looked at it).
 */
export interface SessionIsReadChangedAction {
    type: 'session/isReadChanged';
    /** Whether the session has been read */
    isRead: boolean;
}

/**
 * Requests that the host background the startup of an existing
 * {@link McpServerCustomization} that is currently blocking message
 * processing (see {@link McpServerStartingState.blocking}), so that new
 * messages can be processed without waiting for the server to finish
 * starting.
 *
 * The server keeps starting in the background; backgrounding only stops the
 * host from holding message processing on it.
 *
 * Locates the target entry by `id`, searching both the top-level
 * customization list and the `children` array of every container. When the
 * server is {@link McpServerStatus.Starting | `starting`} with
 * `blocking: true`, the reducer optimistically sets `blocking` to `false`,
 * preserving the rest of the entry. Is a no-op otherwise (no matching
 * `McpServerCustomization`, a different lifecycle state, or not blocking).
 * The host remains authoritative and MAY reject the request by following with
 * {@link SessionMcpServerStateChangedAction | `session/mcpServerStateChanged`}
 * restoring `blocking: true`.
 */
export interface SessionMcpServerBackgroundRequestedAction {
    type: 'session/mcpServerBackgroundRequested';
    /** The id of the {@link McpServerCustomization} to background. */
    id: string;
}

/**
 * Requests that the host start or restart an existing
 * {@link McpServerCustomization}.
 *
 * Locates the target entry by `id`, searching both the top-level
 * customization list and the `children` array of every container. The
 * reducer optimistically moves the server to
 * {@link McpServerStatus.Starting | `starting`} and clears any previous
 * {@link McpServerCustomization.channel | `channel`}; the host remains
 * authoritative and SHOULD follow with
 * {@link SessionMcpServerStateChangedAction | `session/mcpServerStateChanged`}
 * once the server becomes ready, needs authentication, fails, or is
 * rejected. Is a no-op when no matching `McpServerCustomization` is found.
 */
export interface SessionMcpServerStartRequestedAction {
    type: 'session/mcpServerStartRequested';
    /** The id of the {@link McpServerCustomization} to start. */
    id: string;
}

/**
 * Updates the runtime fields of an existing
 * {@link McpServerCustomization} — narrow alternative to
 * {@link SessionCustomizationUpdatedAction} for the high-frequency
 * `starting` ↔ `ready` ↔ `authRequired` transitions.
 *
 * Locates the target entry by `id`, searching both the top-level
 * customization list and the `children` array of every container.
 * Replaces the entry's {@link McpServerCustomization.state | `state`}
 * and {@link McpServerCustomization.channel | `channel`}
 * (full-replacement semantics: omit `channel` to clear an existing
 * channel URI). Other fields of the customization are preserved.
 *
 * Is a no-op when no matching `McpServerCustomization` is found. To
 * update any other field (name, icons, `mcpApp` capabilities, etc.) use
 * {@link SessionCustomizationUpdatedAction} instead.
 *
 * When the transition is to {@link McpServerStatus.AuthRequired}
 * because of a request issued mid-turn, the host SHOULD also raise
 * {@link SessionStatus.InputNeeded} on the session — see
 * {@link McpServerAuthRequiredState} for the rationale.
 */
export interface SessionMcpServerStateChangedAction {
    type: 'session/mcpServerStateChanged';
    /** The id of the {@link McpServerCustomization} to update. */
    id: string;
    /** The new lifecycle state. */
    state: McpServerState;
    /**
     * Updated `mcp://` side-channel URI. Full-replacement: omit to clear
     * an existing channel (typical when leaving
     * {@link McpServerStatus.Ready | `Ready`}).
     */
    channel?: string;
}

/**
 * Requests that the host stop an existing {@link McpServerCustomization}.
 *
 * Locates the target entry by `id`, searching both the top-level
 * customization list and the `children` array of every container. The
 * reducer optimistically moves the server to
 * {@link McpServerStatus.Stopped | `stopped`} and clears any previous
 * {@link McpServerCustomization.channel | `channel`}. Replacing an
 * {@link McpServerStatus.AuthRequired | `authRequired`} lifecycle state with
 * `stopped` unblocks the server from waiting on authentication. If the host
 * also raised session-level input-needed state solely for that MCP server, it
 * SHOULD remove that input-needed entry when accepting the stop.
 *
 * The host remains authoritative and MAY reject the action or follow with
 * {@link SessionMcpServerStateChangedAction | `session/mcpServerStateChanged`}
 * if the final lifecycle state differs. Is a no-op when no matching
 * `McpServerCustomization` is found.
 */
export interface SessionMcpServerStopRequestedAction {
    type: 'session/mcpServerStopRequested';
    /** The id of the {@link McpServerCustomization} to stop. */
    id: string;
}

/**
 * The session's `_meta` side-channel changed. Replaces `state._meta`
 * entirely (full-replacement semantics). Producers SHOULD merge any
 * keys they wish to preserve into the new value before dispatching.
 */
export interface SessionMetaChangedAction {
    type: 'session/metaChanged';
    /** New `_meta` payload, or `undefined` to clear it */
    _meta?: JsonObject;
}

export interface SessionModelInfo {
    /** Model identifier */
    id: string;
    /** Provider this model belongs to */
    provider: string;
    /** Human-readable model name */
    name: string;
    /** Maximum context window size */
    maxContextWindow?: number;
    /** Maximum number of output tokens the model can generate */
    maxOutputTokens?: number;
    /** Maximum number of prompt (input) tokens the model accepts */
    maxPromptTokens?: number;
    /** Whether the model supports vision */
    supportsVision?: boolean;
    /** Policy configuration state */
    policyState?: PolicyState;
    /**
     * Configuration schema describing model-specific options (e.g. thinking
     * level). Clients present this as a form and pass the resolved values in
     * {@link ModelSelection.config} when creating or changing sessions.
     */
    configSchema?: ConfigSchema;
    /**
     * Additional provider-specific metadata for this model.
     *
     * Clients MAY look for well-known keys here to provide enhanced UI.
     * For example, a `pricing` key may carry model pricing metadata.
     */
    _meta?: JsonObject;
}

/** Durable origin of a session. */
export type SessionOrigin = AutomationSessionOrigin;

/** Session backend initialized successfully. */
export interface SessionReadyAction {
    type: 'session/ready';
}

/**
 * Server tools for this session have changed.
 *
 * Full-replacement semantics: the `tools` array replaces the previous `serverTools` entirely.
 */
export interface SessionServerToolsChangedAction {
    type: 'session/serverToolsChanged';
    /** Updated server tools list (full replacement) */
    tools: ToolDefinition[];
}

/**
 * Lightweight catalog entry summarizing one session. Surfaced via
 * {@link RootChannelCommands.listSessions | `root/listSessions`} and
 * `root/sessionAdded`/`root/sessionSummaryChanged` notifications.
 *
 * **Aggregation across chats.** Once a session contains more than one chat,
 * several `SessionSummary` fields are derived from the underlying
 * {@link SessionState.chats | chat catalog}. Producers SHOULD follow these
 * rules so clients that only consume the session summary (e.g. a session
 * list) still see meaningful state:
 *
 * - `status`: take the activity bits (`Idle` / `InProgress` / `InputNeeded` /
 *   `Error` — bits 0–4) from the
 *   {@link SessionState.defaultChat | default chat} when present, else from
 *   the most recently modified chat. **Promote** `InputNeeded` whenever any
 *   chat in the session needs input, and **promote** `Error` whenever any
 *   chat is in an error state — both override the default-chat bits. The
 *   orthogonal flag bits (`IsRead`, `IsArchived`) remain session-scoped.
 * - `activity`: mirror the activity string of the default chat, or of the
 *   chat currently driving the promoted status bits when a non-default chat
 *   wins (e.g. the chat that raised `InputNeeded`).
 * - `modifiedAt`: the max of all chats' `modifiedAt`.
 * - `workingDirectories`: the session-level set. Individual chats MAY restrict
 *   to a subset via {@link ChatSummary.workingDirectories}; aggregating these
 *   up is meaningless and SHOULD NOT be attempted.
 * - `changes`: optional roll-up across all chats. Producers MAY sum the
 *   per-chat {@link ChatSummary.changes | changes summaries} or report the
 *   most expensive chat's stats —
 *   whichever is cheaper for the host to compute.
 *
 * Sessions with a single chat trivially satisfy all of the above (the chat's
 * values pass through unchanged). The rules only matter once a session
 * carries multiple chats.
 */
export interface SessionSummary {
    /** Agent provider ID */
    provider: string;
    /** Session title */
    title: string;
    /** Current session status */
    status: number;
    /** Human-readable description of what the session is currently doing */
    activity?: string;
    /** Durable {@link AutomationSessionOrigin}, when an automation run created this session. */
    origin?: SessionOrigin;
    /** Server-owned project for this session */
    project?: ProjectInfo;
    /**
     * The working directories the session's agent has tool access to, as
     * maintained by working-directory actions. Directories are equal peers except
     * when the agent advertises
     * {@link MultipleWorkingDirectoriesCapability.immutablePrimary} without
     * {@link MultipleWorkingDirectoriesCapability.primaryReplacement} (the first
     * entry is then a fixed process root), or advertises `primaryReplacement`
     * (the first entry is a protected, replaceable primary slot). Individual chats
     * MAY restrict to a subset via
     * {@link ChatSummary.workingDirectories | their own `workingDirectories`}; a
     * chat that sets none operates against this full set.
     */
    workingDirectories?: string[];
    /**
     * Lightweight summary of this session's inline annotations channel
     * (`ahp-session:/<uuid>/annotations`). Surfaced so badge UI can render
     * annotation / entry counts without subscribing. Absent when the session
     * does not expose an annotations channel.
     */
    annotations?: AnnotationsSummary;
    /** Session URI */
    resource: string;
    /** Creation timestamp (ISO 8601, e.g. `"2025-03-10T18:42:03.123Z"`) */
    createdAt: string;
    /** Last modification timestamp (ISO 8601, e.g. `"2025-03-10T18:42:03.123Z"`) */
    modifiedAt: string;
    /**
     * Aggregate summary of file changes associated with this session. Servers
     * may populate this to give clients a quick at-a-glance view of the
     * session's footprint (e.g., for list rendering) without requiring the
     * client to subscribe to a changeset.
     */
    changes?: ChangesSummary;
    /**
     * Lightweight server-defined metadata clients may use for the session
     * presentation. The protocol does not interpret these values; producers
     * SHOULD keep the payload small because summaries appear in session lists
     * and session notifications.
     */
    _meta?: JsonObject;
    /** Lightweight host-authoritative ordered chat catalog. */
    chats?: SessionChatSummary[];
    /** Chat that receives input when none is selected, independent of catalog position. */
    defaultChat?: string;
}

/**
 * Session title updated. Fired by the server when the title is auto-generated
 * from conversation, or dispatched by a client to rename a session.
 */
export interface SessionTitleChangedAction {
    type: 'session/titleChanged';
    /** New title */
    title: string;
}

/**
 * A tool call blocked on MCP authentication mid-execution, surfaced at the
 * session level.
 *
 * The {@link toolCall} is always a {@link ToolCallAuthRequiredState} (a
 * {@link ToolCallState} in `auth-required` status). Unlike
 * {@link SessionToolConfirmationRequest}, this is **not** answered by
 * dispatching a `chat/*` action directly: the client obtains a token for
 * {@link ToolCallAuthRequiredState.auth | `toolCall.auth`}`.resource` and
 * pushes it via the existing `authenticate` command (see
 * {@link /specification/authentication | Authentication}). The host resumes
 * the tool call and dispatches `chat/toolCallAuthResolved` once the token is
 * accepted, at which point it also removes this entry with
 * `session/inputNeededRemoved`.
 */
export interface SessionToolAuthenticationRequest {
    kind: 'toolAuthentication';
    /**
     * Stable key for this entry, unique within the session's
     * {@link SessionState.inputNeeded} list. The host derives it however it likes
     * (for example from the chat URI plus the underlying request or tool-call
     * id); consumers MUST treat it as opaque. It is the key for the
     * `session/inputNeededSet` / `session/inputNeededRemoved` upsert convention.
     */
    id: string;
    /**
     * The chat the underlying request lives in. This is the channel a client
     * dispatches its response to — it does not need to have subscribed to that
     * chat first.
     */
    chat: string;
    /** The turn the tool call belongs to. */
    turnId: string;
    /** The tool call awaiting authentication. */
    toolCall: ToolCallAuthRequiredState;
}

/**
 * A running tool whose execution is delegated to an active client. Surfaced so
 * a client that provides the tool can pick up the work without subscribing to
 * the owning chat.
 *
 * The {@link toolCall} is always a {@link ToolCallRunningState} (a
 * {@link ToolCallState} in `running` status) whose
 * {@link ToolCallRunningState.contributor | `contributor`} is a client
 * {@link ToolCallClientContributor} whose `clientId` matches the denormalized
 * {@link clientId} here. Execute and report the result by dispatching
 * `chat/toolCallComplete` (and optionally streaming with
 * `chat/toolCallContentChanged`) to {@link SessionInputRequestBase.chat |
 * `chat`}, keyed by `turnId` and `toolCall.toolCallId`.
 *
 * Unlike the other variants this does **not** raise
 * {@link SessionStatus.InputNeeded}: the call has already cleared its
 * confirmation gate and is merely executing elsewhere, so the session stays
 * {@link SessionStatus.InProgress} while it runs.
 */
export interface SessionToolClientExecutionRequest {
    kind: 'toolClientExecution';
    /**
     * Stable key for this entry, unique within the session's
     * {@link SessionState.inputNeeded} list. The host derives it however it likes
     * (for example from the chat URI plus the underlying request or tool-call
     * id); consumers MUST treat it as opaque. It is the key for the
     * `session/inputNeededSet` / `session/inputNeededRemoved` upsert convention.
     */
    id: string;
    /**
     * The chat the underlying request lives in. This is the channel a client
     * dispatches its response to — it does not need to have subscribed to that
     * chat first.
     */
    chat: string;
    /** The turn the tool call belongs to. */
    turnId: string;
    /**
     * The `clientId` expected to execute the tool. Matches the `clientId` of the
     * tool call's client {@link ToolCallContributor}.
     */
    clientId: string;
    /**
     * The running tool call the session wants the owning client to execute. The
     * host only ever populates this with a {@link ToolCallRunningState}.
     */
    toolCall: ToolCallRunningState;
}

/**
 * A tool call blocked on confirmation — either parameter confirmation before
 * execution or result confirmation after — surfaced at the session level.
 *
 * Respond by dispatching `chat/toolCallConfirmed` (for
 * {@link ToolCallPendingConfirmationState}) or `chat/toolCallResultConfirmed`
 * (for {@link ToolCallPendingResultConfirmationState}) to
 * {@link SessionInputRequestBase.chat | `chat`}, keyed by `turnId` and
 * `toolCall.toolCallId`.
 */
export interface SessionToolConfirmationRequest {
    kind: 'toolConfirmation';
    /**
     * Stable key for this entry, unique within the session's
     * {@link SessionState.inputNeeded} list. The host derives it however it likes
     * (for example from the chat URI plus the underlying request or tool-call
     * id); consumers MUST treat it as opaque. It is the key for the
     * `session/inputNeededSet` / `session/inputNeededRemoved` upsert convention.
     */
    id: string;
    /**
     * The chat the underlying request lives in. This is the channel a client
     * dispatches its response to — it does not need to have subscribed to that
     * chat first.
     */
    chat: string;
    /** The turn the tool call belongs to. */
    turnId: string;
    /** The tool call awaiting confirmation. */
    toolCall: ToolCallConfirmationState;
}

/**
 * A working directory was removed from the session's
 * {@link SessionState.workingDirectories} set.
 *
 * Removes `directory` from the set; a no-op when it is not present. There is no
 * atomic backend "remove one" primitive — a host reconfigures its agent to the
 * reduced set — so this action is safe to model as idempotent. A host MAY
 * decline to apply the removal (e.g. an immutable primary directory, see
 * {@link MultipleWorkingDirectoriesCapability.immutablePrimary}); it then leaves
 * the set unchanged. When the agent advertises
 * {@link MultipleWorkingDirectoriesCapability.primaryReplacement}, clients MUST
 * NOT use this generic membership action to remove index `0`; the host MUST
 * reject such a removal, leaving the protected slot intact.
 */
export interface SessionWorkingDirectoryRemovedAction {
    type: 'session/workingDirectoryRemoved';
    /** The working directory to revoke the session's agent tool access to. */
    directory: string;
}

/**
 * Atomically replaces one of the session's working directories.
 *
 * This is a targeted compare-and-swap: the reducer is a no-op when
 * {@link SessionState.workingDirectories} does not contain `directory`.
 * Otherwise it replaces that entry with `replacement` and deduplicates the
 * result, preserving every other directory's relative order. When
 * `replacement` occurs after the target, it moves to the target's position;
 * for example, `[A, B, C]` with `B → C` becomes `[A, C]`. When it occurs
 * before the target, it retains its earlier position and the target is removed;
 * `[A, B, C]` with `C → A` becomes `[A, B]`.
 *
 * Only valid when the agent advertises
 * {@link AgentCapabilities.multipleWorkingDirectories}. Replacing index `0`
 * additionally requires
 * {@link MultipleWorkingDirectoriesCapability.primaryReplacement}; clients
 * MUST NOT target an immutable primary. The host MUST validate and apply its
 * backend side effect before broadcasting an accepted action, or reject it.
 */
export interface SessionWorkingDirectoryReplacedAction {
    type: 'session/workingDirectoryReplaced';
    /** URI of the existing entry to replace. */
    directory: string;
    /** URI to place in the replaced entry's position. */
    replacement: string;
}

/**
 * A working directory was added to the session's
 * {@link SessionState.workingDirectories} set.
 *
 * Membership semantics keyed by the directory URI: the reducer appends
 * `directory` when the set does not already contain it (creating the set if
 * absent) and is a no-op when it is already present. Only valid when the agent
 * advertises {@link AgentCapabilities.multipleWorkingDirectories}.
 */
export interface SessionWorkingDirectorySetAction {
    type: 'session/workingDirectorySet';
    /** The working directory to grant the session's agent tool access to. */
    directory: string;
}

/**
 * Immutable selected-text snapshot captured when a side chat is created.
 *
 * The host records this exact text when it accepts `createChat`; later changes
 * to the source chat do not alter it.
 */
export interface SideChatSelection {
    /**
     * Exact selected-text snapshot captured at `createChat` acceptance.
     *
     * MUST be non-empty.
     */
    text: string;
    /**
     * Optional provenance for the response part that contained {@link text} when
     * the host took the snapshot.
     *
     * Advisory only: this is not a live range or offset and MUST NOT be used to
     * recompute `text`.
     */
    responsePartId?: string;
}

/**
 * A simple, opaque attachment whose model representation is described by
 * the producer.
 */
export interface SimpleMessageAttachment {
    type: 'simple';
    /**
     * A human-readable label for the attachment (e.g. the filename of a file
     * attachment). Used for display in UI.
     */
    label: string;
    /**
     * If defined, the range in {@link Message.text} that references this
     * attachment. This is a text range, not a byte range.
     */
    range?: TextRange;
    /**
     * Advisory display hint for clients rendering this attachment. Recognized
     * values include:
     *
     * - `'image'`: the attachment is an image
     * - `'document'`: the attachment is a textual document
     * - `'symbol'`: the attachment is a code symbol (e.g. a function or class)
     * - `'directory'`: the attachment is a folder
     * - `'selection'`: the attachment is a selection within a document
     *
     * Implementations MAY provide additional values; clients SHOULD fall back
     * to a reasonable default when an unknown value is encountered.
     */
    displayKind?: string;
    /**
     * Additional implementation-defined metadata for the attachment.
     *
     * If the attachment was produced by the `completions` command, the client
     * MUST preserve every property of `_meta` originally returned by the agent
     * host when sending the user message containing the accepted completion.
     */
    _meta?: JsonObject;
    /**
     * Representation of the attachment as it should be shown to the model.
     *
     * If the attachment was produced by the client, this property MUST be
     * defined so the agent host can correctly interpret the attachment. This
     * property MAY be omitted when the attachment originated from a
     * `completions` response.
     */
    modelRepresentation?: string;
}

/**
 * A skill contributed by a plugin or directory.
 *
 * Covers both [Open Plugins skill formats](https://open-plugins.com/agent-builders/components/skills)
 * — the `skills/` directory layout (one subdirectory per skill, each with
 * a `SKILL.md`) and the flatter `commands/` directory of slash-command
 * skills.
 */
export interface SkillCustomization {
    type: 'skill';
    /**
     * Session-unique opaque identifier. Used by every action that targets a
     * specific customization. Minted by whoever publishes the customization
     * (typically the agent host).
     */
    id: string;
    /**
     * Source URI for this customization. A plugin URL, a file URI, or a
     * directory URI.
     *
     * For declarations that live inside a larger file — e.g. an MCP
     * server declared inline in a `plugins.json` manifest — `uri` points
     * to the containing file and {@link CustomizationBase.range | `range`}
     * narrows it to the declaration's span.
     */
    uri: string;
    /** Human-readable name. */
    name: string;
    /** Icons for UI display. */
    icons?: Icon[];
    /**
     * Optional span within {@link CustomizationBase.uri | `uri`} when this
     * customization is a subset of a larger file (for example, one entry
     * in an inline `mcpServers` block of a `plugins.json` manifest).
     * Absent when the customization covers the whole resource.
     */
    range?: TextRange;
    /**
     * Additional provider-specific metadata for this customization.
     *
     * Mirrors the MCP `_meta` convention. Optional and opaque to the
     * protocol; producers and consumers agree on its contents
     * out-of-band.
     */
    _meta?: JsonObject;
    /**
     * Whether this child is individually enabled. Absent means enabled, so a
     * producer only needs to set it to surface a child that exists but is
     * turned off on its own.
     *
     * This flag is independent of the parent container's: the **effective**
     * enabled state of a plugin child is the plugin's derived enabled value and
     * `(child.enabled ?? true)`, so a disabled plugin disables every child
     * regardless of each child's own flag. A directory child instead uses the
     * directory's `enabled` value and its own flag.
     *
     * A child is turned on or off by id with
     * {@link SessionCustomizationToggledAction | `session/customizationToggled`}.
     */
    enabled?: boolean;
    /**
     * Short description used for help text and auto-invocation matching.
     * Sourced from the skill's frontmatter `description`.
     */
    description?: string;
    /**
     * When `true`, only the user can invoke this skill — the agent will not
     * auto-invoke it. Sourced from the command skill's frontmatter
     * `disable-model-invocation` flag.
     */
    disableModelInvocation?: boolean;
    /**
     * When `true`, the user cannot directly invoke this skill (for example,
     * as a slash command); it remains available for the agent to
     * auto-invoke. Absent or `false` means the user may invoke it.
     */
    disableUserInvocation?: boolean;
}

/** Discriminated union of every state action. */
export type StateAction =
    | RootAgentsChangedAction
    | RootActiveSessionsChangedAction
    | RootConfigChangedAction
    | SessionReadyAction
    | SessionCreationFailedAction
    | SessionChatAddedAction
    | SessionChatRemovedAction
    | SessionChatUpdatedAction
    | SessionChatsReorderedAction
    | SessionDefaultChatChangedAction
    | ChatTurnStartedAction
    | ChatDeltaAction
    | ChatResponsePartAction
    | ChatToolCallStartAction
    | ChatToolCallDeltaAction
    | ChatToolCallReadyAction
    | ChatToolCallConfirmedAction
    | ChatToolCallCompleteAction
    | ChatToolCallResultConfirmedAction
    | ChatToolCallContentChangedAction
    | ChatToolCallAuthRequiredAction
    | ChatToolCallAuthResolvedAction
    | ChatTurnCompleteAction
    | ChatTurnCancelledAction
    | ChatErrorAction
    | ChatTurnResumeAction
    | ChatActivityChangedAction
    | ChatBackgroundWorkSetAction
    | ChatBackgroundWorkRemovedAction
    | ChatMovableChangedAction
    | ChatChangesetsChangedAction
    | ChatCanvasesChangedAction
    | CanvasStateChangedAction
    | SessionTitleChangedAction
    | ChatUsageAction
    | ChatReasoningAction
    | SessionIsReadChangedAction
    | SessionIsArchivedChangedAction
    | SessionActivityChangedAction
    | SessionChangesetsChangedAction
    | SessionServerToolsChangedAction
    | SessionActiveClientSetAction
    | SessionActiveClientRemovedAction
    | SessionWorkingDirectorySetAction
    | SessionWorkingDirectoryRemovedAction
    | SessionWorkingDirectoryReplacedAction
    | ChatWorkingDirectorySetAction
    | ChatWorkingDirectoryRemovedAction
    | SessionInputNeededSetAction
    | SessionInputNeededRemovedAction
    | ChatPendingMessageSetAction
    | ChatPendingMessageRemovedAction
    | ChatQueuedMessagesReorderedAction
    | ChatDraftChangedAction
    | ChatIsReadChangedAction
    | ChatIsArchivedChangedAction
    | ChatInputRequestedAction
    | ChatInputAnswerChangedAction
    | ChatInputCompletedAction
    | SessionCustomizationsChangedAction
    | SessionCustomizationToggledAction
    | SessionCustomizationUpdatedAction
    | SessionCustomizationRemovedAction
    | SessionMcpServerStateChangedAction
    | SessionMcpServerStartRequestedAction
    | SessionMcpServerStopRequestedAction
    | SessionMcpServerBackgroundRequestedAction
    | ChatTruncatedAction
    | ChatTurnsLoadedAction
    | SessionConfigChangedAction
    | SessionMetaChangedAction
    | ChangesetStatusChangedAction
    | ChangesetFileSetAction
    | ChangesetFileRemovedAction
    | ChangesetFilesReviewChangedAction
    | ChangesetContentChangedAction
    | ChangesetOperationsChangedAction
    | ChangesetOperationStatusChangedAction
    | ChangesetClearedAction
    | AnnotationsSetAction
    | AnnotationsUpdatedAction
    | AnnotationsRemovedAction
    | AnnotationsEntrySetAction
    | AnnotationsEntryRemovedAction
    | RootTerminalsChangedAction
    | TerminalDataAction
    | TerminalInputAction
    | TerminalResizedAction
    | TerminalClaimedAction
    | TerminalTitleChangedAction
    | TerminalCwdChangedAction
    | TerminalExitedAction
    | TerminalClearedAction
    | TerminalCommandDetectionAvailableAction
    | TerminalCommandExecutedAction
    | TerminalCommandFinishedAction
    | ResourceWatchChangedAction
    | AutomationCreateRequestedAction
    | AutomationUpdateRequestedAction
    | AutomationSetAction
    | AutomationRemovedAction
    | AutomationRunLifecycleChangedAction
    | AutomationRunSessionSetAction
    | AutomationRunSessionRemovedAction
    | AutomationRunPrimarySessionChangedAction
    | AutomationRunCancelRequestedAction;

/**
 * A string that may optionally be rendered as Markdown.
 *
 * Serialized as either a plain JSON string or `{ "markdown": "..." }`.
 */
export type StringOrMarkdown = string | { markdown: string };

/**
 * A system notification surfaced as part of the response stream.
 *
 * System notifications are messages authored by the agent harness
 * that need to be visible to both the agent (for situational awareness) and
 * the user (for transcript continuity). Examples include "background subagent
 * X completed" or "task Y was cancelled".
 */
export interface SystemNotificationResponsePart {
    kind: 'systemNotification';
    /** The text of the system notification */
    content: StringOrMarkdown;
    /**
     * Additional provider-specific metadata for this notification.
     *
     * A host MAY attach a machine-readable descriptor of what triggered the
     * notification so clients can categorize, icon, group, filter, or localize
     * it without parsing `content`. Clients MAY look for well-known keys here to
     * provide enhanced UI, and MUST render coherently from `content` alone when
     * `_meta` is absent or unrecognized.
     */
    _meta?: JsonObject;
}

/** Who currently holds a terminal. */
export type TerminalClaim = TerminalClientClaim | TerminalSessionClaim;

/**
 * Terminal claim changed. A client or session transfers ownership of the terminal.
 *
 * The server SHOULD reject if the dispatching client does not currently hold
 * the claim.
 */
export interface TerminalClaimedAction {
    type: 'terminal/claimed';
    /** The new claim */
    claim: TerminalClaim;
}

/** Terminal scrollback buffer cleared. */
export interface TerminalClearedAction {
    type: 'terminal/cleared';
}

/** A terminal claimed by a connected client. */
export interface TerminalClientClaim {
    kind: 'client';
    /** The `clientId` of the claiming client */
    clientId: string;
}

/**
 * Shell integration has loaded and the terminal now supports command
 * detection. The server dispatches this when shell integration becomes
 * available (which may happen asynchronously after the terminal is created).
 *
 * Clients MUST NOT assume command detection is available until this action
 * (or `terminal/commandExecuted`) has been received.
 */
export interface TerminalCommandDetectionAvailableAction {
    type: 'terminal/commandDetectionAvailable';
}

/**
 * A command has been submitted to the shell and is now executing.
 * All subsequent `terminal/data` actions (until the matching
 * `terminal/commandFinished`) constitute this command's output.
 */
export interface TerminalCommandExecutedAction {
    type: 'terminal/commandExecuted';
    /**
     * Stable identifier for this command, scoped to the terminal URI.
     * Allows correlating `commandExecuted` → `commandFinished` pairs.
     */
    commandId: string;
    /** The command line text that was submitted */
    commandLine: string;
    /**
     * Unix timestamp (ms) of when the command started executing, as measured
     * on the server.
     */
    timestamp: number;
}

/**
 * A command has finished executing.
 *
 * The sequence of `terminal/data` actions between the preceding
 * `terminal/commandExecuted` (same `commandId`) and this action constitutes
 * the complete output of the command.
 */
export interface TerminalCommandFinishedAction {
    type: 'terminal/commandFinished';
    /** Matches the `commandId` from the corresponding `commandExecuted` */
    commandId: string;
    /** Shell exit code. `undefined` if the shell did not report one. */
    exitCode?: number;
    /**
     * Wall-clock duration of the command in milliseconds, as measured by the
     * shell integration script on the server side.
     */
    durationMs?: number;
}

/**
 * Outcome of a command run in a terminal-style tool, filled in on
 * {@link ToolResultTerminalContent.result} once the command exits.
 */
export interface TerminalCommandResult {
    /** Exit code from the completed command, if reported by the runtime */
    exitCode?: number;
    /**
     * Preview of the command's output, for clients that are not subscribed
     * to the terminal or that arrive after it is disposed. When `isPty` is
     * `true` the preview may contain VT sequences; when `false` it is plain
     * text.
     */
    preview?: string;
    /** Whether `preview` is known to be incomplete or truncated */
    truncated?: boolean;
}

/** Terminal working directory changed. */
export interface TerminalCwdChangedAction {
    type: 'terminal/cwdChanged';
    /** New working directory */
    cwd: string;
}

/**
 * Terminal output data (pty → client direction).
 *
 * Appends `data` to the terminal's `content` in the reducer.
 *
 * `terminal/data` and `terminal/input` are intentionally separate actions
 * because standard write-ahead reconciliation is not safe for terminal I/O.
 * A pty is a stateful, mutable process — optimistically applying input or
 * predicting output would produce incorrect state. Instead, `terminal/input`
 * is a side-effect-only action (client → server → pty), and `terminal/data`
 * is server-authoritative output (pty → server → client).
 */
export interface TerminalDataAction {
    type: 'terminal/data';
    /** Output data (may contain ANSI escape sequences) */
    data: string;
}

/** Terminal process exited. */
export interface TerminalExitedAction {
    type: 'terminal/exited';
    /** Process exit code. `undefined` if the process was killed without an exit code. */
    exitCode?: number;
}

/** A terminal process that has exited. */
export interface TerminalExitedLifecycleState {
    status: 'exited';
    /** Process exit code, if the runtime reported one. */
    exitCode?: number;
}

/** Lightweight terminal metadata exposed on the root state. */
export interface TerminalInfo {
    /** Terminal URI (subscribable for full terminal state) */
    resource: string;
    /** Human-readable terminal title */
    title: string;
    /** Who currently holds this terminal */
    claim: TerminalClaim;
    /** Current terminal process lifecycle. */
    lifecycle: TerminalLifecycleState;
}

/**
 * Keyboard input sent to the terminal process (client → pty direction).
 *
 * This is a side-effect-only action: the server forwards the data to the
 * terminal's pty. The reducer treats this as a no-op since `terminal/data`
 * actions will reflect any resulting output.
 *
 * See `terminal/data` for why these two actions are kept separate.
 */
export interface TerminalInputAction {
    type: 'terminal/input';
    /** Input data to send to the pty */
    data: string;
}

/** Current lifecycle of a terminal process. */
export type TerminalLifecycleState = TerminalRunningLifecycleState | TerminalExitedLifecycleState;

/**
 * Terminal dimensions changed.
 *
 * Dispatchable by clients to request a resize, or by the server to inform
 * clients of the actual terminal dimensions.
 */
export interface TerminalResizedAction {
    type: 'terminal/resized';
    /** Terminal width in columns */
    cols: number;
    /** Terminal height in rows */
    rows: number;
}

/** A terminal process that is still running. */
export interface TerminalRunningLifecycleState {
    status: 'running';
}

/** A terminal claimed by a session, optionally scoped to a specific turn or tool call. */
export interface TerminalSessionClaim {
    kind: 'session';
    /** Session URI that claimed the terminal */
    session: string;
    /** Chat URI that claimed the terminal. */
    chat: string;
    /** Optional turn identifier within the chat. */
    turnId?: string;
    /** Optional tool call identifier within the turn */
    toolCallId?: string;
}

/**
 * Terminal title changed.
 *
 * Fired by the server when the terminal process updates its title (e.g. via
 * escape sequences), or dispatched by a client to rename a terminal.
 */
export interface TerminalTitleChangedAction {
    type: 'terminal/titleChanged';
    /** New terminal title */
    title: string;
}

/** A zero-based position within a textual document. */
export interface TextPosition {
    /** Zero-based line number. */
    line: number;
    /** Zero-based character offset within the line. */
    character: number;
}

/** A range within a textual document. */
export interface TextRange {
    /** Start position of the range. */
    start: TextPosition;
    /** End position of the range. */
    end: TextPosition;
}

/**
 * A selection within a textual resource.
 *
 * This is only meaningful for textual resources. Binary resources may still
 * use resource or embedded resource attachments, but they should not use this
 * text selection field.
 */
export interface TextSelection {
    /** The range covered by the selection. */
    range: TextRange;
}

/**
 * Behavioral hints about a tool. All properties are advisory and not
 * guaranteed to faithfully describe tool behavior.
 *
 * Mirrors MCP `ToolAnnotations` from the Model Context Protocol specification.
 */
export interface ToolAnnotations {
    /** Alternate human-readable title */
    title?: string;
    /** Tool does not modify its environment (default: false) */
    readOnlyHint?: boolean;
    /** Tool may perform destructive updates (default: true) */
    destructiveHint?: boolean;
    /** Repeated calls with the same arguments have no additional effect (default: false) */
    idempotentHint?: boolean;
    /** Tool may interact with external entities (default: true) */
    openWorldHint?: boolean;
}

/**
 * A running tool call is paused because the MCP server backing it needs
 * authentication — most commonly {@link McpAuthRequirement.reason |
 * `insufficientScope`} step-up auth triggered by the `tools/call` request
 * itself. Only ever reached from {@link ToolCallRunningState}, and normally
 * returns there once authenticated: `running` → `auth-required` → `running`
 * → …. A client MAY instead cancel the invocation without authenticating by
 * dispatching a `chat/toolCallComplete` with a **failed** result, always
 * moving straight to {@link ToolCallCompletedState} —
 * `requiresResultConfirmation` is ignored on this path, so it can never
 * enter {@link ToolCallPendingResultConfirmationState}. A **successful**
 * result dispatched from this state is invalid and MUST be rejected/ignored
 * as a no-op by the reducer, since execution never resumed after the
 * challenge.
 *
 * This is the tool-call-level counterpart to
 * {@link McpServerAuthRequiredState} — that state means the MCP *server*
 * cannot serve any request; this one means *this specific invocation* is
 * waiting on the same kind of challenge. The two are dispatched
 * independently and MAY be true at the same time, or not: an
 * `insufficientScope` challenge triggered by a single tool call, for
 * example, need not block the whole server.
 *
 * Because the challenge is always resolved by pushing a token via the
 * existing `authenticate` command, this state can only originate from a
 * tool call {@link ToolCallContributorKind.MCP | contributed by an MCP
 * server} — `contributor` is narrowed accordingly (unlike the optional,
 * multi-kind `contributor` on other tool call states).
 */
export interface ToolCallAuthRequiredState {
    status: 'auth-required';
    /** Unique tool call identifier */
    toolCallId: string;
    /** Internal tool name (for debugging/logging) */
    toolName: string;
    /** Human-readable tool name */
    displayName: string;
    /** Human-readable description of what the tool invocation intends to do */
    intention?: string;
    /** Reference to the contributor of the tool being called. */
    contributor?: ToolCallContributor;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * This MAY include a `ui` field corresponding to the MCP Apps (SEP-1865)
     * `McpUiToolMeta` found in MCP tool calls, which may be used in combination
     * with the {@link contributor} to serve MCP Apps.
     */
    _meta?: JsonObject;
    /** Message describing what the tool will do */
    invocationMessage: StringOrMarkdown;
    /**
     * Final tool input.
     *
     * Referenced input is mutable until the tool call leaves
     * `pending-confirmation`. When the client confirms with `editedToolInput`,
     * the host MUST replace the resource contents before echoing the accepted
     * confirmation action. Clients MUST NOT cache tool input across confirmation.
     */
    toolInput?: ToolInput;
    /** How the tool was confirmed for execution */
    confirmed: ToolCallConfirmationReason;
    /** The confirmation option the user selected, if confirmation options were provided */
    selectedOption?: ConfirmationOption;
    /** The authentication challenge blocking this invocation. */
    auth: McpAuthRequirement;
    /** Partial content produced before the call paused for authentication. */
    content?: ToolResultContent[];
}

/** Why a tool call was cancelled. */
export type ToolCallCancellationReason = 'denied' | 'skipped' | 'result-denied';

/** Tool call was cancelled before execution. */
export interface ToolCallCancelledState {
    status: 'cancelled';
    /** Unique tool call identifier */
    toolCallId: string;
    /** Internal tool name (for debugging/logging) */
    toolName: string;
    /** Human-readable tool name */
    displayName: string;
    /** Human-readable description of what the tool invocation intends to do */
    intention?: string;
    /** Reference to the contributor of the tool being called. */
    contributor?: ToolCallContributor;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * This MAY include a `ui` field corresponding to the MCP Apps (SEP-1865)
     * `McpUiToolMeta` found in MCP tool calls, which may be used in combination
     * with the {@link contributor} to serve MCP Apps.
     */
    _meta?: JsonObject;
    /** Message describing what the tool will do */
    invocationMessage: StringOrMarkdown;
    /**
     * Final tool input.
     *
     * Referenced input is mutable until the tool call leaves
     * `pending-confirmation`. When the client confirms with `editedToolInput`,
     * the host MUST replace the resource contents before echoing the accepted
     * confirmation action. Clients MUST NOT cache tool input across confirmation.
     */
    toolInput?: ToolInput;
    /** Why the tool was cancelled */
    reason: ToolCallCancellationReason;
    /** Optional message explaining the cancellation */
    reasonMessage?: StringOrMarkdown;
    /** What the user suggested doing instead */
    userSuggestion?: Message;
    /** The confirmation option the user selected, if confirmation options were provided */
    selectedOption?: ConfirmationOption;
}

export interface ToolCallClientContributor {
    kind: 'client';
    /**
     * If this tool is provided by a client, the `clientId` of the owning client.
     * Absent for server-side tools.
     *
     * When set, the identified client is responsible for executing the tool and
     * dispatching `chat/toolCallComplete` with the result.
     */
    clientId: string;
}

/** Tool completed successfully or with an error. */
export interface ToolCallCompletedState {
    status: 'completed';
    /** Unique tool call identifier */
    toolCallId: string;
    /** Internal tool name (for debugging/logging) */
    toolName: string;
    /** Human-readable tool name */
    displayName: string;
    /** Human-readable description of what the tool invocation intends to do */
    intention?: string;
    /** Reference to the contributor of the tool being called. */
    contributor?: ToolCallContributor;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * This MAY include a `ui` field corresponding to the MCP Apps (SEP-1865)
     * `McpUiToolMeta` found in MCP tool calls, which may be used in combination
     * with the {@link contributor} to serve MCP Apps.
     */
    _meta?: JsonObject;
    /** Message describing what the tool will do */
    invocationMessage: StringOrMarkdown;
    /**
     * Final tool input.
     *
     * Referenced input is mutable until the tool call leaves
     * `pending-confirmation`. When the client confirms with `editedToolInput`,
     * the host MUST replace the resource contents before echoing the accepted
     * confirmation action. Clients MUST NOT cache tool input across confirmation.
     */
    toolInput?: ToolInput;
    /** Whether the tool succeeded */
    success: boolean;
    /** Past-tense description of what the tool did */
    pastTenseMessage: StringOrMarkdown;
    /**
     * Unstructured result content blocks.
     *
     * This mirrors the `content` field of MCP `CallToolResult`.
     */
    content?: ToolResultContent[];
    /**
     * Optional structured result object.
     *
     * This mirrors the `structuredContent` field of MCP `CallToolResult`.
     */
    structuredContent?: JsonObject;
    /** Error details if the tool failed */
    error?: unknown;
    /** How the tool was confirmed for execution */
    confirmed: ToolCallConfirmationReason;
    /** The confirmation option the user selected, if confirmation options were provided */
    selectedOption?: ConfirmationOption;
}

/**
 * How a tool call was confirmed for execution.
 *
 * - `NotNeeded` — No confirmation required (auto-approved)
 * - `UserAction` — User explicitly approved
 * - `Setting` — Approved by a persistent user setting
 */
export type ToolCallConfirmationReason = 'not-needed' | 'user-action' | 'setting';

/** A tool call blocked on parameter- or result-confirmation. */
export type ToolCallConfirmationState =
    | ToolCallPendingConfirmationState
    | ToolCallPendingResultConfirmationState;

/** Reference to the contributor of the tool being called. */
export type ToolCallContributor = ToolCallClientContributor | ToolCallMcpContributor;

export interface ToolCallMcpContributor {
    kind: 'mcp';
    /** Customization ID of the corresponding MCP server in {@link SessionState.customizations}. */
    customizationId: string;
}

/**
 * Parameters are complete, or a running tool requires re-confirmation
 * (e.g. a mid-execution permission check).
 */
export interface ToolCallPendingConfirmationState {
    status: 'pending-confirmation';
    /** Unique tool call identifier */
    toolCallId: string;
    /** Internal tool name (for debugging/logging) */
    toolName: string;
    /** Human-readable tool name */
    displayName: string;
    /** Human-readable description of what the tool invocation intends to do */
    intention?: string;
    /** Reference to the contributor of the tool being called. */
    contributor?: ToolCallContributor;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * This MAY include a `ui` field corresponding to the MCP Apps (SEP-1865)
     * `McpUiToolMeta` found in MCP tool calls, which may be used in combination
     * with the {@link contributor} to serve MCP Apps.
     */
    _meta?: JsonObject;
    /** Message describing what the tool will do */
    invocationMessage: StringOrMarkdown;
    /**
     * Final tool input.
     *
     * Referenced input is mutable until the tool call leaves
     * `pending-confirmation`. When the client confirms with `editedToolInput`,
     * the host MUST replace the resource contents before echoing the accepted
     * confirmation action. Clients MUST NOT cache tool input across confirmation.
     */
    toolInput?: ToolInput;
    /** Short title for the confirmation prompt (e.g. `"Run in terminal"`, `"Write file"`) */
    confirmationTitle?: StringOrMarkdown;
    /** Risk assessment that informed the confirmation requirement. */
    riskAssessment?: ToolCallRiskAssessment;
    /** File edits that this tool call will perform, for preview before confirmation */
    edits?: FileEditCollection;
    /** Whether the agent host allows the client to edit the tool's input parameters before confirming */
    editable?: boolean;
    /**
     * Options the server offers for this confirmation. When present, the client
     * SHOULD render these instead of a plain approve/deny UI. Each option
     * belongs to a {@link ConfirmationOptionGroup} so the client can still
     * categorise the choices.
     */
    options?: ConfirmationOption[];
}

/** Tool finished executing, waiting for client to approve the result. */
export interface ToolCallPendingResultConfirmationState {
    status: 'pending-result-confirmation';
    /** Unique tool call identifier */
    toolCallId: string;
    /** Internal tool name (for debugging/logging) */
    toolName: string;
    /** Human-readable tool name */
    displayName: string;
    /** Human-readable description of what the tool invocation intends to do */
    intention?: string;
    /** Reference to the contributor of the tool being called. */
    contributor?: ToolCallContributor;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * This MAY include a `ui` field corresponding to the MCP Apps (SEP-1865)
     * `McpUiToolMeta` found in MCP tool calls, which may be used in combination
     * with the {@link contributor} to serve MCP Apps.
     */
    _meta?: JsonObject;
    /** Message describing what the tool will do */
    invocationMessage: StringOrMarkdown;
    /**
     * Final tool input.
     *
     * Referenced input is mutable until the tool call leaves
     * `pending-confirmation`. When the client confirms with `editedToolInput`,
     * the host MUST replace the resource contents before echoing the accepted
     * confirmation action. Clients MUST NOT cache tool input across confirmation.
     */
    toolInput?: ToolInput;
    /** Whether the tool succeeded */
    success: boolean;
    /** Past-tense description of what the tool did */
    pastTenseMessage: StringOrMarkdown;
    /**
     * Unstructured result content blocks.
     *
     * This mirrors the `content` field of MCP `CallToolResult`.
     */
    content?: ToolResultContent[];
    /**
     * Optional structured result object.
     *
     * This mirrors the `structuredContent` field of MCP `CallToolResult`.
     */
    structuredContent?: JsonObject;
    /** Error details if the tool failed */
    error?: unknown;
    /** How the tool was confirmed for execution */
    confirmed: ToolCallConfirmationReason;
    /** The confirmation option the user selected, if confirmation options were provided */
    selectedOption?: ConfirmationOption;
}

/**
 * A tool call represented as a response part.
 *
 * Tool calls are part of the response stream, interleaved with text and
 * reasoning. The `toolCall.toolCallId` serves as the part identifier for
 * actions that target this part.
 */
export interface ToolCallResponsePart {
    kind: 'toolCall';
    /** Full tool call lifecycle state */
    toolCall: ToolCallState;
}

/** Tool execution result details, available after execution completes. */
export interface ToolCallResult {
    /** Whether the tool succeeded */
    success: boolean;
    /** Past-tense description of what the tool did */
    pastTenseMessage: StringOrMarkdown;
    /**
     * Unstructured result content blocks.
     *
     * This mirrors the `content` field of MCP `CallToolResult`.
     */
    content?: ToolResultContent[];
    /**
     * Optional structured result object.
     *
     * This mirrors the `structuredContent` field of MCP `CallToolResult`.
     */
    structuredContent?: JsonObject;
    /** Error details if the tool failed */
    error?: unknown;
}

/** Asynchronous model-judge confirmation rationale. */
export type ToolCallRiskAssessment =
    | ToolCallRiskAssessmentLoadingState
    | ToolCallRiskAssessmentCompleteState;

/** The model judge has completed its evaluation. */
export interface ToolCallRiskAssessmentCompleteState {
    status: 'complete';
    kind: ToolCallRiskAssessmentKind;
    reason: StringOrMarkdown;
    /** The judge's normalized safety score, where `0` is unsafe and `1` is safe. */
    safety: number;
}

/** Identifies a model judge as the source of a confirmation requirement. */
export type ToolCallRiskAssessmentKind = 'judge';

/** The model judge is still evaluating the tool call. */
export interface ToolCallRiskAssessmentLoadingState {
    status: 'loading';
    kind: ToolCallRiskAssessmentKind;
}

/** Tool is actively executing. */
export interface ToolCallRunningState {
    status: 'running';
    /** Unique tool call identifier */
    toolCallId: string;
    /** Internal tool name (for debugging/logging) */
    toolName: string;
    /** Human-readable tool name */
    displayName: string;
    /** Human-readable description of what the tool invocation intends to do */
    intention?: string;
    /** Reference to the contributor of the tool being called. */
    contributor?: ToolCallContributor;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * This MAY include a `ui` field corresponding to the MCP Apps (SEP-1865)
     * `McpUiToolMeta` found in MCP tool calls, which may be used in combination
     * with the {@link contributor} to serve MCP Apps.
     */
    _meta?: JsonObject;
    /** Message describing what the tool will do */
    invocationMessage: StringOrMarkdown;
    /**
     * Final tool input.
     *
     * Referenced input is mutable until the tool call leaves
     * `pending-confirmation`. When the client confirms with `editedToolInput`,
     * the host MUST replace the resource contents before echoing the accepted
     * confirmation action. Clients MUST NOT cache tool input across confirmation.
     */
    toolInput?: ToolInput;
    /** How the tool was confirmed for execution */
    confirmed: ToolCallConfirmationReason;
    /** The confirmation option the user selected, if confirmation options were provided */
    selectedOption?: ConfirmationOption;
    /**
     * Partial content produced while the tool is still executing.
     *
     * For example, a terminal content block lets clients subscribe to live
     * output before the tool completes.
     */
    content?: ToolResultContent[];
}

/** Full tool call lifecycle state. */
export type ToolCallState =
    | ToolCallStreamingState
    | ToolCallPendingConfirmationState
    | ToolCallRunningState
    | ToolCallAuthRequiredState
    | ToolCallPendingResultConfirmationState
    | ToolCallCompletedState
    | ToolCallCancelledState;

/** LM is streaming the tool call parameters. */
export interface ToolCallStreamingState {
    status: 'streaming';
    /** Unique tool call identifier */
    toolCallId: string;
    /** Internal tool name (for debugging/logging) */
    toolName: string;
    /** Human-readable tool name */
    displayName: string;
    /** Human-readable description of what the tool invocation intends to do */
    intention?: string;
    /** Reference to the contributor of the tool being called. */
    contributor?: ToolCallContributor;
    /**
     * Additional provider-specific metadata for this tool call.
     *
     * This MAY include a `ui` field corresponding to the MCP Apps (SEP-1865)
     * `McpUiToolMeta` found in MCP tool calls, which may be used in combination
     * with the {@link contributor} to serve MCP Apps.
     */
    _meta?: JsonObject;
    /** Partial parameters accumulated from tool-call deltas. */
    partialInput?: string;
    /** Progress message shown while parameters are streaming */
    invocationMessage?: StringOrMarkdown;
}

/** Describes a tool available in a session, provided by either the server or the active client. */
export interface ToolDefinition {
    /** Unique tool identifier */
    name: string;
    /** Human-readable display name */
    title?: string;
    /** Description of what the tool does */
    description?: string;
    /**
     * JSON Schema defining the expected input parameters.
     *
     * Optional because client-provided tools may not have formal schemas.
     * Mirrors MCP `Tool.inputSchema`.
     */
    inputSchema?: unknown;
    /**
     * JSON Schema defining the structure of the tool's output.
     *
     * Mirrors MCP `Tool.outputSchema`.
     */
    outputSchema?: unknown;
    /** Behavioral hints about the tool. All properties are advisory. */
    annotations?: ToolAnnotations;
    /**
     * Additional provider-specific metadata.
     *
     * Mirrors the MCP `_meta` convention.
     */
    _meta?: JsonObject;
}

/** Raw tool input represented inline or by content reference. */
export type ToolInput = string | ContentRef;

/** Content block in a tool result. */
export type ToolResultContent =
    | ToolResultTextContent
    | ToolResultEmbeddedResourceContent
    | ToolResultResourceContent
    | ToolResultFileEditContent
    | ToolResultTerminalContent
    | ToolResultSubagentContent;

/**
 * Base64-encoded binary content embedded in a tool result.
 *
 * Mirrors MCP `EmbeddedResource` for inline binary data.
 */
export interface ToolResultEmbeddedResourceContent {
    type: 'embeddedResource';
    /** Base64-encoded data */
    data: string;
    /** Content type (e.g. `"image/png"`, `"application/pdf"`) */
    contentType: string;
}

/** Describes a file modification performed by a tool. */
export interface ToolResultFileEditContent {
    type: 'fileEdit';
    /** The file state before the edit. Absent for file creations or for in-place file edits. */
    before?: FileEditSide;
    /** The file state after the edit. Absent for file deletions. */
    after?: FileEditSide;
    /** Optional diff display metadata */
    diff?: FileEditDiffStats;
}

/**
 * A reference to a resource stored outside the tool result.
 *
 * Wraps {@link ContentRef} for lazy-loading large results.
 */
export interface ToolResultResourceContent {
    type: 'resource';
    /** Content URI */
    uri: string;
    /** Approximate size in bytes */
    sizeHint?: number;
    /** Content MIME type */
    contentType?: string;
    /** Content nonce */
    nonce?: string;
}

/**
 * A reference, embedded in a tool result, to a worker chat spawned by the tool
 * call (a sub-agent delegation), referenced by a chat URI (`ahp-chat:/...`).
 *
 * This is the spawning tool call's forward view of the worker. The worker chat
 * records the same edge in reverse via its {@link ChatOrigin} (`kind: 'tool'`),
 * whose `toolCallId` identifies the tool call that emitted this content.
 */
export interface ToolResultSubagentContent {
    type: 'subagent';
    /** Worker chat URI (subscribable for full chat state) */
    resource: string;
    /** Display title for the subagent */
    title: string;
    /** Internal agent name */
    agentName?: string;
    /** Human-readable description of the subagent's task */
    description?: string;
}

/**
 * A reference to a terminal whose output is relevant to this tool result.
 *
 * Clients can subscribe to the terminal's URI to stream its output in real
 * time, providing live feedback while a tool is executing. The same URI
 * remains subscribable for historical results: when the referenced resource's
 * lifecycle is `exited`, subscribing returns an exited {@link TerminalState}
 * containing the retained terminal content. Servers may reconstruct that state
 * lazily and do not need to retain a live terminal process.
 *
 * When the command exits, {@link result} is filled in on the completed
 * result, retaining the outcome for clients that did not subscribe. This
 * records the command's exit, not the terminal's — the terminal may keep
 * running afterwards.
 */
export interface ToolResultTerminalContent {
    type: 'terminal';
    /** Terminal URI (subscribable for live or retained terminal state) */
    resource: string;
    /** Display title for the terminal content */
    title: string;
    /**
     * Whether this terminal-style resource is backed by a pseudoterminal.
     * When `false`, output is plain text and clients do not need to parse
     * VT sequences.
     */
    isPty?: boolean;
    /** Outcome of the command, present once it has exited. */
    result?: TerminalCommandResult;
}

/**
 * Text content in a tool result.
 *
 * Mirrors MCP `TextContent`.
 */
export interface ToolResultTextContent {
    type: 'text';
    /** The text content */
    text: string;
}

/** A completed request/response cycle. */
export interface Turn {
    /** Turn identifier */
    id: string;
    /** ISO 8601 timestamp when this turn started. */
    startedAt?: string;
    /** Turn duration in milliseconds. */
    duration?: number;
    /** The message that initiated the turn */
    message: Message;
    /**
     * All response content in stream order: text, tool calls, reasoning, and content refs.
     *
     * Consumers should derive display text by concatenating markdown parts,
     * and find tool calls by filtering for `ToolCall` parts.
     */
    responseParts: ResponsePart[];
    /** Token usage info */
    usage?: UsageInfo;
    /** How the turn ended */
    state: TurnState;
}

/** How a turn ended. */
export type TurnState = 'complete' | 'cancelled' | 'error';

export interface UsageInfo {
    /** Input tokens consumed */
    inputTokens?: number;
    /** Output tokens generated */
    outputTokens?: number;
    /** Model used */
    model?: string;
    /** Tokens read from cache */
    cacheReadTokens?: number;
    /**
     * Additional provider-specific metadata for this usage report.
     * Clients MAY look for well-known optional keys here to provide enhanced UI.
     */
    _meta?: JsonObject;
}
