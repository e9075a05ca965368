// Terminals on plain pipes: a shell people type lines into and watch. It is no pseudoterminal, so programs that draw on
// the whole screen do not run in it.
//
// { "plugins": [{ "name": "./terminals.ts", "options": { "shell": "/bin/sh" } }] }

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { basename } from 'node:path';
import process from 'node:process';
import type { PluginHost, Terminal, TerminalEvents, TerminalRequest } from '@ostler/sdk';

export const title = 'Terminals on pipes';
export const defaults = { shell: '/bin/sh' };
export const optionsSchema = {
    type: 'object',
    properties: { shell: { type: 'string', description: 'The shell where a person has chosen none.' } },
};

class PipeTerminal implements Terminal {
    readonly title: string;
    readonly isPty = false;
    readonly #child: ChildProcess;

    constructor(file: string, args: string[], request: TerminalRequest, events: TerminalEvents) {
        this.title = basename(file);
        const { env, cols, rows } = request;
        this.#child = spawn(file, args, {
            cwd: request.cwd,
            env: { ...process.env, TERM: 'dumb', ...env, COLUMNS: String(cols), LINES: String(rows) },
        });
        for (const stream of [this.#child.stdout, this.#child.stderr]) {
            stream!.setEncoding('utf8');
            stream!.on('data', (data: string) => events.data(data));
        }
        // What is typed after the end goes nowhere.
        this.#child.stdin!.on('error', () => {});
        this.#child.on('error', (error: Error) => {
            events.data(`${error.message}\n`);
            events.exited(127);
        });
        // `close` comes once the pipes are empty, `exit` would come too early.
        this.#child.on('close', (code: number | null, signal: string | null) => {
            if (signal) events.data(`${signal}\n`);
            events.exited(code ?? 128);
        });
    }

    input(data: string): void {
        for (const part of data.split(/(\x03|\x04)/)) {
            if (part === '\x03') this.#signal('SIGINT');
            else if (part === '\x04') this.#child.stdin!.end();
            else if (part) this.#child.stdin!.write(part.replaceAll('\r', '\n'));
        }
    }

    kill(signal?: string): void {
        this.#signal(signal ?? 'SIGTERM');
    }

    dispose(): void {
        this.#signal('SIGKILL');
    }

    /** Each child leads a group of its own: what it started goes with it. */
    #signal(signal: string): void {
        const { pid, exitCode, signalCode } = this.#child;
        if (!pid || exitCode !== null || signalCode !== null) return;
        try {
            process.kill(-pid, signal as NodeJS.Signals);
        } catch (error) {
            if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
        }
    }
}

/** A shell that could not start: its reason is its output. */
function failed(why: string, events: TerminalEvents): Terminal {
    events.data(`${why}\n`);
    events.exited(127);
    return { title: 'sh', input() {}, dispose() {} };
}

export function apply(host: PluginHost, options: { shell: string }): void {
    host.registerTerminals({
        create(request, events) {
            const { command, args, cwd } = request;
            if (cwd && !existsSync(cwd)) return failed(`${cwd}: no such directory`, events);
            const shell = request.shell ?? options.shell;
            if (command === undefined) return new PipeTerminal(shell, [], request, events);
            if (args) return new PipeTerminal(command, args, request, events);
            return new PipeTerminal(shell, ['-c', command], request, events);
        },
    });
}
