// A vault: secrets in one file of the plugin's own, in place of the daemon's. It is listed before every plugin whose
// options name a secret.
//
// { "plugins": [{ "name": "./vault.ts", "options": { "file": "secrets.json" } }, …] }

import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { PluginHost, Vault } from '@ostler/sdk';

export const title = 'A vault in one file';
export const defaults = { file: 'secrets.json' };
export const optionsSchema = {
    type: 'object',
    properties: { file: { type: 'string', description: 'Where secrets are kept, from the configuration folder.' } },
};

const NAME = /^(host:[^/\s]+|(team|user):[^/\s]+\/[^/\s]+)$/;

class FileVault implements Vault {
    readonly #file: string;
    #secrets: Promise<Map<string, string>>;

    constructor(file: string) {
        this.#file = file;
        this.#secrets = readFile(file, 'utf8').then(
            (text) => new Map(Object.entries(JSON.parse(text))),
            (error) => {
                if (error.code === 'ENOENT') return new Map();
                throw error;
            },
        );
        // Whoever asks first is told; nobody does before then.
        this.#secrets.catch(() => {});
    }

    async get(name: string): Promise<string | undefined> {
        return (await this.#read(name)).get(name);
    }

    async set(name: string, value: string): Promise<void> {
        await this.#change(name, (secrets) => secrets.set(name, value));
    }

    async delete(name: string): Promise<boolean> {
        return this.#change(name, (secrets) => secrets.delete(name));
    }

    async list(): Promise<string[]> {
        return [...(await this.#secrets).keys()];
    }

    #read(name: string): Promise<Map<string, string>> {
        if (!NAME.test(name)) throw new Error('a secret is named host:<name>, team:<team>/<name> or user:<id>/<name>');
        return this.#secrets;
    }

    /** One change after the other, each written whole before the next. */
    async #change<T>(name: string, change: (secrets: Map<string, string>) => T): Promise<T> {
        let answer!: T;
        const before = this.#read(name);
        this.#secrets = before.then(async (secrets) => {
            const next = new Map(secrets);
            answer = change(next);
            await mkdir(dirname(this.#file), { recursive: true });
            await writeFile(`${this.#file}.new`, JSON.stringify(Object.fromEntries(next)), { mode: 0o600 });
            await rename(`${this.#file}.new`, this.#file);
            return next;
        });
        const written = this.#secrets;
        // A write that failed costs itself alone.
        this.#secrets = written.catch(() => before);
        await written;
        return answer;
    }
}

export function apply(host: PluginHost, options: { file: string }): void {
    host.registerVault(new FileVault(resolve(host.configDir, options.file)), 'replace');
}
