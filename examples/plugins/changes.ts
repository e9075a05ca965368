// What sessions changed, as git sees it: every file that is not committed, and a way to put one back.

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import type {
    ChangeScope,
    Changes,
    ChangesetOperationTarget,
    ChangesOf,
    ChangesState,
    ChangesSummary,
    InvokeChangesetOperationResult,
    PluginHost,
} from '@ostler/sdk';

export const title = 'Uncommitted changes';

const run = promisify(execFile);

/** Each changed file with its lines added and removed. */
async function changed(directory: string | undefined): Promise<[path: string, added: number, removed: number][]> {
    if (directory === undefined) return [];
    const { stdout } = await run('git', ['-C', directory, 'diff', '--numstat', '--relative', 'HEAD']);
    const rows = String(stdout).split('\n').filter(Boolean);
    return rows.map((row) => {
        const [added, removed, path] = row.split('\t');
        return [path!, Number(added) || 0, Number(removed) || 0];
    });
}

class Uncommitted implements Changes {
    scopes(): ChangeScope[] {
        return [{ scope: 'uncommitted', label: 'Uncommitted', changeKind: 'uncommitted', review: true }];
    }

    async state({ directory }: ChangesOf): Promise<ChangesState> {
        const files = (await changed(directory)).map(([path, added, removed]) => {
            const uri = pathToFileURL(join(directory!, path)).href;
            return { id: path, edit: { after: { uri, content: { uri } }, diff: { added, removed } } };
        });
        return { files, operations: [{ id: 'revert', label: 'Put back', scopes: ['resource'], status: 'idle' }] };
    }

    async summary({ directory }: ChangesOf): Promise<ChangesSummary> {
        const files = await changed(directory);
        return {
            files: files.length,
            additions: files.reduce((sum, [, added]) => sum + added, 0),
            deletions: files.reduce((sum, [, , removed]) => sum + removed, 0),
        };
    }

    async operate(
        { directory }: ChangesOf,
        scope: string,
        operation: string,
        target?: ChangesetOperationTarget,
    ): Promise<InvokeChangesetOperationResult> {
        const path = fileURLToPath((target as { resource: string }).resource);
        await run('git', ['-C', directory!, 'checkout', 'HEAD', '--', path]);
        return { message: `${path} is as it was committed.` };
    }
}

export function apply(host: PluginHost): void {
    host.registerChanges(new Uncommitted());
}
