// A record store: everything in memory, gone with the daemon, and a line in the log for each record written.

import { memoryRecords } from '@ostler/sdk';
import type { CollectionOptions, PluginHost, RecordStore, StoredCollection } from '@ostler/sdk';

export const title = 'Records in memory';

class Noted implements RecordStore {
    readonly #store = memoryRecords();
    readonly #log: (line: string) => void;

    constructor(log: (line: string) => void) {
        this.#log = log;
    }

    async collection(name: string, options: CollectionOptions): Promise<StoredCollection> {
        const kept = await this.#store.collection(name, options);
        return {
            ...kept,
            put: (record) => {
                this.#log(`${name}/${record.id} is written`);
                return kept.put(record);
            },
        };
    }
}

export function apply(host: PluginHost): void {
    host.registerRecords(new Noted(host.log), 'replace');
}
