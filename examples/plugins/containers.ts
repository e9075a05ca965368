// Dev containers without a container: the host "inside" is a program started in the folder itself. A maker that uses the
// dev-container command line has the same members and starts that program inside instead.
//
// { "plugins": [{ "name": "./containers.ts", "options": { "command": ["ostler", "--stdio"] } }] }

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { basename } from 'node:path';
import { createInterface } from 'node:readline';
import type { ContainerEvents, ContainerRequest, Containers, DevContainer, PluginHost } from '@ostler/sdk';

export const title = 'Dev containers that are processes';
export const defaults = { command: ['ostler', '--stdio'] };
export const optionsSchema = {
    type: 'object',
    properties: {
        command: { type: 'array', items: { type: 'string' }, description: 'The host to start for each connection.' },
    },
};

class Processes implements Containers {
    readonly #command: string[];
    readonly #folders = new Map<string, string>();
    readonly #children = new Map<string, { container: string; child: ChildProcess }>();

    constructor(command: string[]) {
        this.#command = command;
    }

    available(): boolean {
        return this.#command.length > 0;
    }

    make({ connection, workspaceFolder }: ContainerRequest, events: ContainerEvents): DevContainer {
        if (!existsSync(workspaceFolder)) throw new Error(`${workspaceFolder} does not exist`);
        // One folder, one container, however many connections.
        const id = this.#folders.get(workspaceFolder) ?? `c${this.#folders.size + 1}`;
        this.#folders.set(workspaceFolder, id);
        const [program, ...args] = this.#command;
        const child = spawn(program!, args, { cwd: workspaceFolder });
        this.#children.set(connection, { container: id, child });
        createInterface({ input: child.stdout! }).on('line', (line: string) => {
            if (line.startsWith('{')) events.message(line);
            else events.output(line);
        });
        createInterface({ input: child.stderr! }).on('line', (line: string) => events.output(line));
        child.stdin!.on('error', () => {});
        child.on('error', (error: Error) => events.output(error.message));
        child.on('close', () => {
            this.#children.delete(connection);
            events.closed();
        });
        return { id, name: basename(workspaceFolder), remoteWorkspaceFolder: workspaceFolder, hostWorkspaceFolder: workspaceFolder };
    }

    write(_container: string, connection: string, data: string): void {
        const open = this.#children.get(connection);
        if (!open) throw new Error('the host inside has ended');
        open.child.stdin!.write(`${data}\n`);
    }

    stop(container: string): void {
        for (const [connection, open] of this.#children) {
            if (open.container === container) this.disconnect(container, connection);
        }
    }

    remove(container: string): void {
        this.stop(container);
        for (const [folder, id] of this.#folders) {
            if (id === container) this.#folders.delete(folder);
        }
    }

    disconnect(_container: string, connection: string): void {
        this.#children.get(connection)?.child.kill();
        this.#children.delete(connection);
    }
}

export function apply(host: PluginHost, { command }: { command: string[] }): void {
    host.registerContainers(new Processes(command));
}
