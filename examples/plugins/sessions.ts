// A session store: what the host keeps of its sessions, in memory. Sessions do not outlive the daemon with it.

import type {
    JsonObject,
    KeptChat,
    KeptSession,
    KeptTurn,
    ListedPlace,
    PluginHost,
    SessionFlags,
    SessionStore,
    StoredSession,
} from '@ostler/sdk';

export const title = 'Sessions in memory';

class Kept {
    flags?: SessionFlags;
    config?: KeptSession;
    artifacts: unknown[] = [];
    pullRequests: JsonObject = {};
    titles = new Map<string, string>();
    chats: KeptChat[] = [];
    turns = new Map<string, KeptTurn[]>();
}

/** Below zero where `one` is listed before `other`: the session modified last comes first. */
function order(one: ListedPlace, other: ListedPlace): number {
    const compare = (a: string, b: string) => (a < b ? -1 : a > b ? 1 : 0);
    return compare(other.modifiedAt, one.modifiedAt) || compare(one.uri, other.uri);
}

class MemorySessions implements SessionStore {
    readonly #kept = new Map<string, Kept>();

    #of(id: string): Kept {
        return this.#kept.get(id) ?? new Kept();
    }

    #change(id: string, change: (kept: Kept) => void): void {
        const kept = this.#of(id);
        change(kept);
        this.#kept.set(id, kept);
    }

    flags = (id: string) => this.#of(id).flags;
    setFlags = (id: string, flags: SessionFlags) => this.#change(id, (kept) => (kept.flags = flags));
    config = (id: string) => this.#of(id).config;
    setConfig = (id: string, session: KeptSession) => this.#change(id, (kept) => (kept.config = session));
    artifacts = (id: string) => this.#of(id).artifacts;
    setArtifacts = (id: string, artifacts: unknown[]) => this.#change(id, (kept) => (kept.artifacts = artifacts));
    pullRequests = (id: string) => this.#of(id).pullRequests;
    setPullRequests = (id: string, pullRequests: JsonObject) =>
        this.#change(id, (kept) => (kept.pullRequests = pullRequests));
    chatTitle = (id: string, chat: string) => this.#of(id).titles.get(chat);
    setChatTitle = (id: string, chat: string, title?: string | null) =>
        this.#change(id, (kept) => {
            if (title == null) kept.titles.delete(chat);
            else kept.titles.set(chat, title);
        });
    chats = (id: string) => this.#of(id).chats;
    setChats = (id: string, chats: KeptChat[]) => this.#change(id, (kept) => (kept.chats = chats));
    sessions = () => [...this.#kept].filter(([, kept]) => kept.config).map(([id]) => id);
    forget = (id: string) => void this.#kept.delete(id);

    all = () =>
        [...this.#kept].flatMap(([id, { config, flags, chats }]): StoredSession[] =>
            config ? [{ id, session: config, flags, chats }] : [],
        );
    session = (id: string) => this.all().find((stored) => stored.id === id);
    page = (limit: number, after?: ListedPlace | null) =>
        this.all()
            .filter(({ session }) => !after || order(session, after) > 0)
            .sort((one, other) => order(one.session, other.session))
            .slice(0, limit);
    sessionOfChat = (chat: string) =>
        this.all().find(({ chats }) => chats?.some(({ uri, closed }) => uri === chat && !closed))?.id;
    drafts = () => this.all().flatMap(({ id, session }) => (session.draft ? [id] : []));
    count = () => this.sessions().length;
    turns = (id: string, chat: string) => this.#of(id).turns.get(chat) ?? [];
    setTurn = (id: string, chat: string, place: number, turn: KeptTurn) =>
        this.#change(id, (kept) => {
            const turns = [...(kept.turns.get(chat) ?? [])];
            turns[place] = turn;
            kept.turns.set(chat, turns);
        });
    dropTurns = (id: string, chat: string, from: number) =>
        this.#change(id, (kept) => kept.turns.set(chat, (kept.turns.get(chat) ?? []).slice(0, from)));
}

export function apply(host: PluginHost): void {
    host.registerSessions(new MemorySessions(), 'replace');
}
