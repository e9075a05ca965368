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
