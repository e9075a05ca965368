// An automation store: definitions and runs in memory. The host matches events, starts runs and settles them; a store
// keeps, and refuses what does not hold together.

import { RpcError } from '@ostler/sdk';
import type {
    AutomationDefinition,
    AutomationDefinitionPatch,
    AutomationRunState,
    AutomationStore,
    KeptAutomation,
    PluginHost,
    RunPage,
} from '@ostler/sdk';

export const title = 'Automations in memory';

const PAGE = 20;
const [INVALID, NOT_FOUND, EXISTS] = [-32602, -32001, -32010];

/** What is wrong with a definition beyond its types. */
function wrong({ title, triggers, disableConditions = [] }: AutomationDefinition): string | undefined {
    if (!title.trim()) return 'title must be a non-empty string';
    const ids = new Set<string>();
    for (const [at, trigger] of triggers.entries()) {
        if (ids.has(trigger.id)) return `triggers[${at}].id must be unique`;
        ids.add(trigger.id);
        if (trigger.kind === 'event' && trigger.events.length === 0) {
            return `triggers[${at}].events must be a list with at least one event`;
        }
    }
    const kinds = new Set<string>();
    for (const [at, condition] of disableConditions.entries()) {
        if (condition.kind === 'afterRuns' && !(condition.max >= 1)) {
            return `disableConditions[${at}].max must be a whole number of 1 or more`;
        }
        if (condition.kind === 'afterDate' && Number.isNaN(Date.parse(condition.date))) {
            return `disableConditions[${at}].date must be a timestamp, as 2026-01-31T12:00:00Z`;
        }
        if (kinds.has(condition.kind)) {
            return `disableConditions[${at}].kind must be unique; ${condition.kind} is named twice`;
        }
        kinds.add(condition.kind);
    }
    return undefined;
}

function checked(id: string, definition: AutomationDefinition): AutomationDefinition {
    const why = wrong(definition);
    if (why) throw new RpcError(INVALID, `${id} cannot be kept: ${why}`);
    const { disableConditions, ...rest } = definition;
    const message = { ...definition.message, origin: { kind: 'automation' as const } };
    return { ...rest, message, ...(disableConditions?.length && { disableConditions }) };
}

class MemoryAutomations implements AutomationStore {
    readonly #kept = new Map<string, KeptAutomation>();
    /** In the order they began; a run keeps its place. */
    readonly #runs: AutomationRunState[] = [];

    list = () => [...this.#kept.values()];
    get = (id: string) => this.#kept.get(id);
    triggers = () => [];

    create = (id: string, definition: AutomationDefinition, owner?: string | null): KeptAutomation => {
        if (!/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/.test(id)) throw new RpcError(INVALID, `${id} is no automation's id`);
        if (this.#kept.has(id)) throw new RpcError(EXISTS, `ahp-automation:/${id} already exists`);
        const now = new Date().toISOString();
        const kept = { id, definition: checked(id, definition), createdAt: now, modifiedAt: now, ...(owner && { owner }) };
        this.#kept.set(id, kept);
        return kept;
    };

    update = (id: string, changes: AutomationDefinitionPatch): KeptAutomation => {
        const before = this.#kept.get(id);
        if (!before) throw new RpcError(NOT_FOUND, `No automation at ahp-automation:/${id}`);
        const given = Object.fromEntries(Object.entries(changes).filter(([, value]) => value != null));
        if (Object.keys(given).length === 0) return before;
        const definition = checked(id, { ...before.definition, ...given });
        const kept = { ...before, definition, modifiedAt: new Date().toISOString() };
        this.#kept.set(id, kept);
        return kept;
    };

    remove = (id: string): boolean => {
        const left = this.#runs.filter((run) => run.automation !== `ahp-automation:/${id}`);
        this.#runs.splice(0, Infinity, ...left);
        return this.#kept.delete(id);
    };

    run = (run: AutomationRunState): void => {
        const at = this.#runs.findIndex(({ resource }) => resource === run.resource);
        this.#runs.splice(at < 0 ? this.#runs.length : at, 1, run);
    };

    runOf = (uri: string) => this.#runs.find(({ resource }) => resource === uri);

    runs = (id: string, cursor?: string | null): RunPage => {
        const all = this.#runs.filter((run) => run.automation === `ahp-automation:/${id}`).reverse();
        let from = 0;
        if (cursor != null) {
            from = all.findIndex(({ resource }) => resource === cursor) + 1;
            if (from === 0) throw new RpcError(INVALID, `Unrecognised cursor ${cursor}`);
        }
        const runs = all.slice(from, from + PAGE);
        const more = from + PAGE < all.length;
        return { runs, ...(more && { nextCursor: runs[runs.length - 1]!.resource }) };
    };

    unfinished = () => this.#runs.filter(({ lifecycle }) => ['pending', 'running'].includes(lifecycle.status));
}

export function apply(host: PluginHost): void {
    host.registerAutomations(new MemoryAutomations(), 'replace');
}
