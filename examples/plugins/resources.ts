// Files for clients to read from one folder, in place of everything the host serves. It has no write half, so nothing
// is ever written through it.
//
// { "plugins": [{ "name": "./resources.ts", "options": { "folder": "/srv/handbook" } }, …] }

import { readFile, readdir, realpath, stat } from 'node:fs/promises';
import { relative, resolve, sep } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import {
    RpcError,
    type DirectoryEntry,
    type PluginHost,
    type ResourceCompletion,
    type ResourceContent,
    type ResourceFacts,
    type ResourceStore,
} from '@ostler/sdk';

export const title = 'One folder, to be read';
export const optionsSchema = {
    type: 'object',
    required: ['folder'],
    properties: { folder: { type: 'string', description: 'The folder, from the configuration folder.' } },
};

const NOT_THERE = -32008;
const NOT_ALLOWED = -32009;

class Folder implements ResourceStore {
    readonly #folder: string;

    constructor(folder: string) {
        this.#folder = folder;
    }

    /** What a URI names, once every link is followed: only then is it known where it lies. */
    async #path(uri: string): Promise<string> {
        const named = uri.startsWith('/') ? uri : fileURLToPath(uri);
        const folder = await realpath(this.#folder);
        const path = await realpath(named).catch(() => undefined);
        if (path === undefined) throw new RpcError(NOT_THERE, `there is no ${uri}`);
        if (path !== folder && !path.startsWith(folder + sep)) throw new RpcError(NOT_ALLOWED, `${uri} is not served`);
        return path;
    }

    async list(uri: string): Promise<DirectoryEntry[]> {
        const entries = await readdir(await this.#path(uri), { withFileTypes: true });
        return entries.map((entry) => ({ name: entry.name, type: entry.isDirectory() ? 'directory' : 'file' }));
    }

    async read(uri: string): Promise<ResourceContent> {
        const bytes = await readFile(await this.#path(uri));
        const text = bytes.toString('utf8');
        return bytes.equals(Buffer.from(text)) && !text.includes('\0')
            ? { data: text }
            : { data: bytes.toString('base64'), encoding: 'base64' };
    }

    async resolve(uri: string): Promise<ResourceFacts> {
        const path = await this.#path(uri);
        const found = await stat(path);
        return {
            uri: pathToFileURL(path).href,
            type: found.isDirectory() ? 'directory' : 'file',
            size: found.size,
            mtime: found.mtime.toISOString(),
        };
    }

    async complete(directory: string, typed: string): Promise<ResourceCompletion[]> {
        const base = await this.#path(directory);
        const entries = await readdir(base, { recursive: true, withFileTypes: true });
        return entries
            .map((entry) => ({ entry, path: relative(base, resolve(entry.parentPath, entry.name)) }))
            .filter(({ path }) => path.toLowerCase().includes(typed.toLowerCase()))
            .slice(0, 50)
            .map(({ entry, path }) => ({
                uri: pathToFileURL(resolve(base, path)).href,
                path: entry.isDirectory() ? `${path}/` : path,
            }));
    }
}

export function apply(host: PluginHost, options: { folder: string }): void {
    host.registerResources(new Folder(resolve(host.configDir, options.folder)), 'replace');
}
