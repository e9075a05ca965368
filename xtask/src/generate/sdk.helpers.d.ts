// The exports of the module at run time. The engine provides them; no installation is needed.

/** An error of a command or provider for its caller. */
export class RpcError extends Error {
    /** `code` is a code of JSON-RPC or of the protocol; `data` is for programs. */
    constructor(code: number, message: string, data?: unknown);
    readonly code: number;
    readonly data?: unknown;
}

/** A record store in memory, for tests. */
export function memoryRecords(): {
    collection(name: string, options?: CollectionOptions): Promise<MemoryCollection>;
};

/** A collection of `memoryRecords`. */
export interface MemoryCollection {
    /** One record, or nothing. */
    get(id: string): Promise<JsonObject | undefined>;
    /** The ids of all records. */
    ids(): Promise<string[]>;
    /** All records. */
    list(): Promise<JsonObject[]>;
    /** The records whose top-level fields equal each field of `match`. */
    find(match: JsonObject): Promise<JsonObject[]>;
    /** Stores a record, replacing the one with its id. Rejects an id that is not a slug. */
    put(record: JsonObject): Promise<void>;
    /** Deletes a record; `true` if it existed. */
    remove(id: string): Promise<boolean>;
    /** Calls back after each change; returns the function that stops it. */
    watch(onChange: (change: RecordChange) => void): () => void;
}

/** A policy: a rule that restricts what grants allow. */
export interface Policy {
    /** Unique in the whole store; the policy's address is `policy://<id>`. */
    id: string;
    /** Scope: `all`, `user:<id>`, `team:<id>` or `project:<team>:<project>`. */
    scope: string;
    /** Kind of work. */
    kind: 'model' | 'agent' | 'computer';
    /** Effect. A matching `deny` always wins. */
    effect: 'allow' | 'deny';
    /** Conditions. Values of one type are alternatives; `*` matches any characters. */
    match?: { model?: string[]; proxy?: string[]; agent?: string[]; computer?: string[] };
    /** Limits that must all have room; absent for no limit. Stored, not enforced. */
    limits?: PolicyLimit[];
    /** Stored, not enforced. */
    pool?: unknown;
    /** Stored, not enforced. */
    cap?: unknown;
    /** A timestamp, or a date that covers its whole day. */
    from?: string;
    /** A timestamp, or a date that covers its whole day. */
    until?: string;
    title?: string;
    description?: string;
}

/** A limit of a policy. */
export interface PolicyLimit {
    amount: number;
    /** For a model `usd`, `tokens` or `calls`; for an agent `usd`, `tokens`, `turns` or `hours`; for a computer `hours` or `sessions`. */
    measure: 'usd' | 'tokens' | 'calls' | 'turns' | 'hours' | 'sessions';
    period: 'day' | 'week' | 'month' | 'total';
    pool: 'shared' | 'each';
}

/** Returns a valid policy with its dates as timestamps, or throws an `RpcError` (-32602) that names the invalid field. */
export function checkPolicy(body: unknown): Policy;

/** A policy store in one JSON file. */
export function filePolicies(options: { file: string }): {
    list(): Promise<Policy[]>;
    get(id: string): Promise<Policy | undefined>;
    put(policy: Policy): Promise<void>;
    remove(id: string): Promise<boolean>;
};

/** A tool of an endpoint; without `run`, a client runs it. */
export interface ServedTool {
    definition: { name: string; title?: string; description?: string; inputSchema?: unknown };
    run?(input: unknown): Awaitable<unknown>;
}

/**
 * MCP endpoints for a plugin with its own listener or route. `origin` is read when an endpoint opens; without a value
 * none can be opened.
 */
export function toolServers(about: {
    origin: string | (() => string | null | undefined);
    name: string;
    version: string;
}): {
    /** Opens an endpoint with a separate path and token. */
    open(options: {
        tools(): Awaitable<readonly ServedTool[]>;
        /** Runs a tool that has no `run`. */
        runClient?(name: string, input: unknown): Awaitable<unknown>;
        /** `notify` reports changes on the `GET` stream; `list` requires a new listing. Default: `list`. */
        toolsChanged?: 'notify' | 'list';
    }): { url: string; token: string; changed(): void; close(): void } | undefined;
    /** Handles requests under `/ahp-mcp`; returns `undefined` for others. */
    request(request: Request): Promise<Response | undefined>;
};
