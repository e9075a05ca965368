// What work cost, in one file of the plugin's own: a line of JSON per entry, to be read by anything.
//
// { "plugins": [{ "name": "./usage.ts", "options": { "file": "usage.jsonl" } }, …] }

import { appendFile, mkdir, readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { PluginHost, Usage, UsageEntry, UsageQuery, UsageTotal } from '@ostler/sdk';

export const title = 'Use in one file';
export const defaults = { file: 'usage.jsonl' };
export const optionsSchema = {
    type: 'object',
    properties: { file: { type: 'string', description: 'Where usage is stored, from the configuration folder.' } },
};

class FileUsage implements Usage {
    readonly #file: string;
    #written: Promise<void> = Promise.resolve();

    constructor(file: string) {
        this.#file = file;
    }

    /** One line after the other; the host says when each was. */
    async record(entry: UsageEntry): Promise<void> {
        const written = this.#written.then(async () => {
            await mkdir(dirname(this.#file), { recursive: true });
            await appendFile(this.#file, `${JSON.stringify(entry)}\n`);
        });
        // A write that failed costs itself alone.
        this.#written = written.catch(() => {});
        await written;
    }

    async total(query: UsageQuery): Promise<UsageTotal> {
        const total: Record<string, number> = {};
        const add = (measure: string, amount?: number) => {
            if (amount !== undefined) total[measure] = (total[measure] ?? 0) + amount;
        };
        for (const { kind, model, cost, seconds } of await this.#asked(query)) {
            if (cost?.currency === 'USD') {
                add('usd', cost.amount);
                add('inputUsd', cost.input);
                add('outputUsd', cost.output);
            }
            const counts = {
                input: model?.input,
                output: model?.output,
                cacheRead: model?.cache?.read,
                cacheWrite: model?.cache?.write,
            };
            for (const [measure, tokens] of Object.entries(counts)) {
                add(measure, tokens);
                add('tokens', tokens);
            }
            if (kind === 'model') add('calls', 1);
            else add('seconds', seconds);
        }
        return total;
    }

    async pools(): Promise<string[]> {
        const entries = await this.#asked({});
        return [...new Set(entries.flatMap((entry) => entry.pools ?? []))].sort();
    }

    async records(query: UsageQuery): Promise<UsageEntry[]> {
        const entries = await this.#asked(query);
        return entries
            .map((entry, place) => ({ entry, place }))
            .sort((a, b) => (b.entry.at! < a.entry.at! ? -1 : b.entry.at! > a.entry.at! ? 1 : b.place - a.place))
            .map(({ entry }) => entry)
            .slice(0, query.limit);
    }

    /** Instants come in UTC, written so that they sort by time. */
    async #asked({ pool, from = '', until = '~' }: UsageQuery): Promise<UsageEntry[]> {
        await this.#written;
        const text = await readFile(this.#file, 'utf8').catch((error) => {
            if (error.code === 'ENOENT') return '';
            throw error;
        });
        const entries: UsageEntry[] = text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
        return entries.filter(
            (entry) => entry.at! >= from && entry.at! < until && (pool === undefined || entry.pools?.includes(pool)),
        );
    }
}

export function apply(host: PluginHost, options: { file: string }): void {
    host.registerUsage(new FileUsage(resolve(host.configDir, options.file)), 'replace');
}
