// Machines without a container: each is a folder that stands for its root, and a backend's process runs on this host
// with that folder as its home and no variable but its own. It keeps nothing apart; a maker that does, Docker say, has
// the same members.
//
// { "plugins": [{ "name": "./computers.ts", "options": { "profiles": { "plain": { "title": "Plain" } } } }] }
//
// A session names one: `"computer": "disposable:plain"`. Its backend has to say what it needs with `machine()`.

import { cp, mkdir, readFile, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Computer, Computers, MachineProcess, MachineProfile, MachineRequest, PluginHost } from '@ostler/sdk';

export const title = 'Machines that are folders';
export const defaults = { folder: 'machines', profiles: {} };
export const optionsSchema = {
    type: 'object',
    properties: {
        folder: { type: 'string', description: 'Where machines are kept, from the configuration folder.' },
        profiles: { type: 'object', description: 'What machines are made from: { title?, agents?, needs? } by name.' },
    },
};

interface Options {
    folder: string;
    profiles: Record<string, MachineProfile>;
}

const ADDRESS = 'computer://';

class Folders implements Computers {
    readonly #folder: string;
    readonly #profiles: Record<string, MachineProfile>;

    constructor(folder: string, profiles: Record<string, MachineProfile>) {
        this.#folder = folder;
        this.#profiles = profiles;
    }

    async how(computer: string, process: MachineProcess): Promise<MachineProcess> {
        const home = this.#home(computer);
        const { env } = JSON.parse(await readFile(join(home, '.machine.json'), 'utf8'));
        const variables = Object.entries({ PATH: '/usr/bin:/bin', ...env, ...process.env, HOME: home });
        const assigned = variables.map(([name, value]) => `${name}=${value}`);
        const cwd = process.cwd ? join(home, process.cwd) : home;
        return { program: 'env', args: ['-i', ...assigned, process.program, ...(process.args ?? [])], cwd };
    }

    async list(): Promise<Computer[]> {
        await mkdir(this.#folder, { recursive: true });
        const machines: Computer[] = [];
        for (const id of await readdir(this.#folder)) {
            const { agents, mounts } = JSON.parse(await readFile(join(this.#folder, id, '.machine.json'), 'utf8'));
            machines.push({ id, running: true, agents, mounts, workdir: '/' });
        }
        return machines;
    }

    profiles(): Record<string, MachineProfile> {
        return this.#profiles;
    }

    async make(request: MachineRequest): Promise<string> {
        const id = request.session.replace(/[^a-z0-9]+/gi, '-').toLowerCase();
        try {
            await this.#build(join(this.#folder, id), request);
        } catch (error) {
            await this.remove(ADDRESS + id);
            throw error;
        }
        return ADDRESS + id;
    }

    async #build(home: string, { agents, plan, workingDirectory }: MachineRequest): Promise<void> {
        const missing = plan.parts[0];
        if (missing) throw new Error(`this maker builds no parts, and ${missing.part} ${missing.version} is needed`);
        const mounts = [...plan.mounts];
        if (workingDirectory) mounts.push({ source: workingDirectory, target: '/work', readOnly: false });
        for (const { source, target } of mounts) {
            await mkdir(dirname(join(home, target)), { recursive: true });
            await symlink(source, join(home, target));
        }
        for (const { target } of plan.volumes) await mkdir(join(home, target), { recursive: true });
        const seeds = plan.volumes.flatMap((volume) => volume.seed ?? []);
        for (const { source, target } of [...plan.copies, ...seeds]) {
            await mkdir(dirname(join(home, target)), { recursive: true });
            await cp(source, join(home, target), { recursive: true });
        }
        await mkdir(home, { recursive: true });
        const about = { agents, mounts, env: plan.env };
        await writeFile(join(home, '.machine.json'), JSON.stringify(about), { mode: 0o600 });
    }

    async remove(computer: string): Promise<void> {
        await rm(this.#home(computer), { recursive: true, force: true });
    }

    /** Every machine here was made for one session, and goes with it. */
    async left(computer: string): Promise<void> {
        await this.remove(computer);
    }

    #home(computer: string): string {
        const id = computer.slice(ADDRESS.length);
        if (!/^[a-z0-9-]+$/.test(id)) throw new Error(`${computer} is no machine of this host`);
        return join(this.#folder, id);
    }
}

export function apply(host: PluginHost, { folder, profiles }: Options): void {
    host.registerComputers(new Folders(join(host.configDir, folder), profiles));
}
