// Working trees by git itself: each session that asks for one works on a branch of its own, beside the repository.

import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import type { PluginHost, Repository, Worktree, WorktreeRequest, Worktrees } from '@ostler/sdk';

export const title = 'Working trees of git';

const run = promisify(execFile);

async function git(directory: string, ...args: string[]): Promise<string> {
    const { stdout } = await run('git', ['-C', directory, ...args]);
    return String(stdout).trim();
}

class GitWorktrees implements Worktrees {
    async repository(directory: string): Promise<Repository | undefined> {
        const root = await git(directory, 'rev-parse', '--show-toplevel').catch(() => undefined);
        return root ? { root } : undefined;
    }

    async branches(repository: string, typed: string): Promise<string[]> {
        const format = '--format=%(refname:short)';
        const branches = await git(repository, 'for-each-ref', '--sort=-committerdate', format, 'refs/heads');
        return branches.split('\n').filter((branch) => branch && branch.includes(typed));
    }

    async create(request: WorktreeRequest): Promise<Worktree> {
        const { repository, name, branch, createNewBranch, branchPrefix, track } = request;
        const path = `${repository}.worktrees/${name}`;
        const from = branch ?? (await this.branches(repository, ''))[0] ?? 'HEAD';
        if (!createNewBranch) {
            await git(repository, 'worktree', 'add', path, from);
            return { path, branch: from };
        }
        const own = `${branchPrefix ?? ''}${name}`;
        await git(repository, 'worktree', 'add', track ? '--track' : '--no-track', '-b', own, path, from);
        return { path, branch: own };
    }

    async dirty(tree: string): Promise<boolean> {
        return (await git(tree, 'status', '--porcelain')) !== '';
    }

    async remove(tree: string): Promise<void> {
        // A tree is not removed from inside.
        const main = resolve(tree, await git(tree, 'rev-parse', '--git-common-dir'), '..');
        await git(main, 'worktree', 'remove', tree);
    }

    async gitDir(tree: string): Promise<string> {
        return git(tree, 'rev-parse', '--absolute-git-dir');
    }
}

export function apply(host: PluginHost): void {
    host.registerWorktrees(new GitWorktrees());
}
