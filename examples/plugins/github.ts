// Pull requests of GitHub: the one of a session's branch is shown beside it, and clients may open one.
//
// { "plugins": [{ "name": "./github.ts", "options": { "repository": "inn/stable" } }, …] }

import type { BranchAsked, PluginHost, PullRequest, PullRequestRequest, PullRequests } from '@ostler/sdk';

export const title = 'Pull requests of GitHub';
export const defaults = { api: 'https://api.github.com/repos' };
export const optionsSchema = {
    type: 'object',
    required: ['repository'],
    properties: {
        repository: { type: 'string', description: 'As owner/name.' },
        api: { type: 'string', description: 'Where the API is.' },
    },
};

interface Row {
    html_url: string;
    state: 'open' | 'closed';
    merged_at?: string | null;
    head: { ref: string };
}

class GitHub implements PullRequests {
    readonly resource;
    readonly #repository: string;
    readonly #url: string;

    constructor(api: string, repository: string) {
        this.resource = { resource: api, resource_name: 'GitHub', required: false };
        this.#repository = repository;
        this.#url = `${api}/${repository}/pulls`;
    }

    async forBranch({ branch, token }: BranchAsked): Promise<PullRequest | undefined> {
        if (branch === undefined) return undefined;
        const [owner] = this.#repository.split('/');
        const query = new URLSearchParams({ head: `${owner}:${branch}`, state: 'all', per_page: '1' });
        const [row] = (await this.#ask(`${this.#url}?${query}`, token)) as Row[];
        return row && this.#told(row);
    }

    async create({ branch, token, title, body, base, draft }: PullRequestRequest): Promise<PullRequest> {
        const asked = { title, body, head: branch, base: base ?? 'main', draft };
        return this.#told((await this.#ask(this.#url, token, asked)) as Row);
    }

    async #ask(url: string, token: string | undefined, body?: object): Promise<unknown> {
        const headers: Record<string, string> = { accept: 'application/vnd.github+json' };
        if (token !== undefined) headers.authorization = `Bearer ${token}`;
        const answer = await fetch(url, { headers, ...(body && { method: 'POST', body: JSON.stringify(body) }) });
        if (!answer.ok) throw new Error(`GitHub answered ${answer.status} for ${this.#repository}`);
        return answer.json();
    }

    #told(row: Row): PullRequest {
        const [owner, repo] = this.#repository.split('/') as [string, string];
        return { owner, repo, url: row.html_url, branch: row.head.ref, state: row.merged_at ? 'merged' : row.state };
    }
}

export function apply(host: PluginHost, options: { api: string; repository: string }): void {
    host.registerGithub(new GitHub(options.api, options.repository));
}
