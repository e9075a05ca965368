// What is known of the directories sessions work in: a note somebody left there, for every client to show.

import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Directories, JsonObject, PluginHost } from '@ostler/sdk';

export const title = 'Notes left in directories';

class Notes implements Directories {
    readonly #known = new Map<string, JsonObject>();

    async meta(directory: string): Promise<JsonObject> {
        const known = this.#known.get(directory);
        if (known) return known;
        const file = join(directory, 'NOTE.md');
        const text = await readFile(file, 'utf8').catch(() => undefined);
        const facts: JsonObject =
            text === undefined
                ? {}
                : { note: { text: text.split('\n', 1)[0], leftAt: (await stat(file)).mtime.toISOString() } };
        this.#known.set(directory, facts);
        return facts;
    }

    /** A turn has ended there: what was known may be old. */
    refresh(directory: string): void {
        this.#known.delete(directory);
    }
}

export function apply(host: PluginHost): void {
    host.registerDirectories(new Notes());
}
